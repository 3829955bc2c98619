"""What jobs do on PBS: what they see, arrays, dependencies, limits, and the end of ranks.

Where `qsub --version` names a PBS these run on it; else on the stand-in of a box, which is what the
facts of the last section are about.
"""

import json
import os
import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest

# The variables of a job of OpenPBS 23.06.06, as `env` showed them. Torque's PBS_NUM_NODES, PBS_NP
# and PBS_NUM_PPN are not among them.
SEEN = {
    *("ENVIRONMENT", "JOBCOOKIE", "JOBDIR", "JOBID", "JOBNAME", "MOMPORT", "NODEFILE", "NODENUM"),
    *("O_HOME", "O_HOST", "O_LANG", "O_PATH", "O_QUEUE", "O_SHELL", "O_SYSTEM", "O_WORKDIR"),
    *("QUEUE", "TASKNUM"),
}
OF_SUBMITTER = {"LANG", "SHELL", "HOME", "PATH"}  # PBS_O_ of it only if it is set there
LOOK = """#!/bin/bash
#PBS -N look
#PBS -l select=2:ncpus=2:mpiprocs=2
#PBS -l walltime=00:01:00
#PBS -j oe
pwd
env
echo ---
stat -c %a "$TMPDIR"
touch "$TMPDIR/mine"
cat "$PBS_NODEFILE"
"""
SEEDS = """#!/bin/bash
#PBS -N seeds
#PBS -S /bin/bash
#PBS -J 0-2
#PBS -l select=1:ncpus=1
#PBS -l walltime=00:05:00
. "$PBS_O_WORKDIR/cluster_jobs/lib/run.sh"
run allhands train lab1_cpu --out "$ALLHANDS_RUN" --set seed=$PBS_ARRAY_INDEX {tiny}
again_if_85 $?
"""


LIMIT_TEST = "test_before_the_time_limit_a_job_saves_submits_itself_again_and_ends"
SITES = {"reedbush-h": "-W group_list=", "miyabi-g": "-W group_list=", "abci3": "-P "}


def train_three_seeds(pbs, tiny):
    script = pbs.script("seeds.pbs", SEEDS.format(tiny=" ".join(tiny)))
    return pbs.run("qsub", "-v", f"ALLHANDS_SITE={pbs.site}", "-W", "block=true", script)


def train_until_the_limit(project, tiny):
    """Six updates: the trainer's clock stops part 1 after three, and part 2 goes on there."""
    return project.submit("lab1_seq2seq", "--", *tiny, "--set", "epochs=2", "--stop-after", "4")


def run_as_at(site, pbs):
    """Queue, account and shape as the site's file has them; only its modules are not here."""
    path = pbs.root / f"cluster_jobs/sites/{site}.env"
    path.write_text(re.sub(r"(?m)^ALLHANDS_MODULES=.*", "ALLHANDS_MODULES=", path.read_text()))
    local = {"ALLHANDS_LEVEL": "cpu", "ALLHANDS_ACCOUNT": "root", "ALLHANDS_ASK": "no"}
    command = (pbs.root / "cluster_jobs/submit", "lab4_mgwfbp", "--site", site, "--wait")
    return pbs.run(*command, "--", "--repeats", "2", **local)


@pytest.fixture(scope="session")
def begun(pbs, ticking, tiny, begin):
    """What takes long, beside the other tests."""
    project = ticking(pbs)
    found = {
        "project": project,
        "seeds": begin(
            __file__, "test_an_array_trains_with_three_seeds", train_three_seeds, pbs, tiny
        ),
        "limit": begin(__file__, LIMIT_TEST, train_until_the_limit, project, tiny),
    }
    for site in SITES if pbs.box else ():
        test = f"test_a_lab_runs_in_the_dialect_of_a_site[{site}]"
        found[site] = begin(__file__, test, run_as_at, site, pbs)
    return found


@pytest.fixture(scope="session", autouse=True)
def _begin(begun):
    """Begin with the first test of this file."""


@pytest.fixture
def only_stand_in(pbs):
    if pbs.box is None:
        pytest.skip("a real PBS is at hand: this is about the stand-in of a box")


def qsub(pbs, script: str, *words: object, **more: str):
    """Submit a script and wait for it: (exit code, the job's output)."""
    path = pbs.script("job.sh", script)
    output = pbs.root / "out.txt"
    output.unlink(missing_ok=True)
    options = ("-W", "block=true", "-j", "oe", "-o", output)
    ran = pbs.run("qsub", *options, *words, path, **more)
    return ran.returncode, output.read_text() if output.exists() else ran.stdout


def submit(pbs, name: str, script: str, *words: object) -> str:
    ran = pbs.run(
        "qsub", "-j", "oe", "-o", pbs.root / f"{name}.out", *words, pbs.script(name, script)
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout.strip()


def attribute(pbs, job: str, name: str) -> str:
    """An attribute of `qstat -fx`; "" if the job has none, or is forgotten."""
    shown = pbs.run("qstat", "-fx", job).stdout
    found = re.search(rf"^    {name} = (.*)$", shown, re.MULTILINE)
    return found[1] if found else ""


# ---- what a job sees ----


def test_a_job_sees_what_a_job_of_pbs_sees(pbs):
    code, output = qsub(pbs, LOOK, "-v", "GIVEN=a b", SUBMITTERS="not passed on")
    assert code == 0, output
    shown, _, rest = output.partition("---\n")
    folder, _, environment = shown.partition("\n")
    variables = dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)
    assert folder == variables["HOME"] != str(pbs.root), "a job starts in the home folder"
    assert variables["PBS_O_WORKDIR"] == str(pbs.root)
    names = {name.removeprefix("PBS_") for name in variables if name.startswith("PBS_")}
    unset = {f"O_{name}" for name in OF_SUBMITTER if name not in pbs.environ()}
    assert names - {"O_LOGNAME", "O_MAIL", "O_TZ"} == SEEN - unset
    assert not [name for name in variables if name.startswith(("SLURM", "SBATCH", "SRUN", "PMI"))]
    assert variables["PBS_ENVIRONMENT"] == "PBS_BATCH"
    assert variables["PBS_JOBNAME"] == "look"
    assert variables["NCPUS"] == variables["OMP_NUM_THREADS"] == "2", "the cores of a chunk"
    assert variables["GIVEN"] == "a b"
    assert "SUBMITTERS" not in variables
    assert "CUDA_VISIBLE_DEVICES" not in variables
    mode, *hosts = rest.split()
    assert mode == "700"
    assert not os.path.exists(variables["TMPDIR"]), "the private folder ends with the job"
    assert hosts == hosts[:1] * 4, "without -l place chunks lie together"


def test_capital_v_passes_the_submitters_variables_on(pbs):
    code, output = qsub(pbs, 'echo "got $SUBMITTERS"\n', "-V", SUBMITTERS="a, b")
    assert (code, output) == (0, "got a, b\n")


def test_scattered_chunks_lie_on_two_hosts(pbs):
    script = 'echo $(cat "$PBS_NODEFILE")\n'
    chunks = ("-l", "select=2:ncpus=2:mpiprocs=2:ompthreads=1", "-l", "place=scatter")
    code, output = qsub(pbs, script, *chunks)
    one, two, three, four = output.split()
    assert (code, one, three) == (0, two, four)
    assert one != three
    _, old_words = qsub(pbs, script, "-l", "nodes=2:ppn=2")
    assert len(set(old_words.split())) == 2


def test_ranks_start_on_both_hosts_and_see_no_scheduler_of_others(pbs):
    code, output = qsub(
        pbs,
        f"cd {shlex.quote(str(pbs.root))}; . .venv/bin/activate\n"
        "mpiexec -n 4 python -c 'import os; from mpi4py import MPI\n"
        'found = [n for n in os.environ if n.startswith("SLURM")]\n'
        'print(MPI.COMM_WORLD.size, os.uname().nodename, found, os.environ["PBS_JOBID"][:0])\'\n',
        *("-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter", "-l", "walltime=60"),
    )
    assert code == 0, output
    hosts = [line.split()[1] for line in output.splitlines()]
    assert len(hosts) == 4
    assert len(set(hosts)) == 2
    assert all(re.fullmatch(r"4 \S+ \[\] ?", line) for line in output.splitlines()), output


# ---- ends ----


def test_block_gives_the_jobs_exit_code(pbs):
    assert qsub(pbs, "#PBS -W block=true\necho so; exit 5\n") == (5, "so\n")


def test_output_and_error_have_the_names_of_the_job(pbs):
    script = "#PBS -N told\necho out; echo err >&2\n"
    path = pbs.script("told.sh", script)
    ran = pbs.run("qsub", "-W", "block=true", path)
    number = re.match(r"\d+", ran.stdout)[0]
    assert (pbs.root / f"told.o{number}").read_text() == "out\n"
    assert (pbs.root / f"told.e{number}").read_text() == "err\n"


def test_the_walltime_kills_without_a_warning(pbs):
    script = "trap 'echo warned' TERM\necho begun\nsleep 600 &\nwait\n"
    code, output = qsub(pbs, script, "-l", "walltime=2")
    assert code == -29 % 256
    assert "begun" in output
    assert "warned" not in output
    assert re.search(r"walltime \d+ exceeded limit 2", output)


def test_qdel_tells_the_script_first(pbs, until):
    """Once: the trainer takes a second SIGTERM for an order to end without saving."""
    script = "trap 'echo told' TERM\necho begun\nsleep 600 & wait\nsleep 1\n"
    job = submit(pbs, "deleted", script)
    until(lambda: "begun" in read(pbs, "deleted.out"), "start of the job")
    assert pbs.run("qdel", job).returncode == 0
    until(lambda: "told" in read(pbs, "deleted.out"), "answer of its trap")
    until(lambda: pbs.run("qstat", job).returncode != 0, "end of the job")
    assert read(pbs, "deleted.out").count("told") == 1


def read(pbs, name: str) -> str:
    path = pbs.root / name
    return path.read_text() if path.exists() else ""


def test_qdel_leaves_no_rank(pbs, tiny, until, processes_with):
    if pbs.box is None:
        pytest.skip("a real PBS runs its ranks on other machines, which this test cannot look into")
    corpus = f"cancel-{os.getpid()}-pbs.tsv"
    (pbs.root / corpus).write_text((pbs.root / "pairs.tsv").read_text())
    settings = [*tiny, "--set", f"train={corpus}", "--set", "epochs=100000"]
    shape = ("--nodes", "2", "--ranks-per-node", "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pbs.submit, "lab2_dataparallel", *shape, "--", *settings)

        def trains() -> bool:
            return any("run folder" in p.read_text() for p in pbs.root.glob("runs/jobs/lab2*.log"))

        until(lambda: trains() or waiting.done(), "training")
        (note,) = pbs.root.glob("runs/jobs/lab2_dataparallel.*.job")
        job = re.search(r"^ALLHANDS_JOB_ID=(\S+)", note.read_text(), re.MULTILINE)[1]
        assert processes_with(f"train={corpus}"), waiting.result().stdout
        assert pbs.run("qdel", job).returncode == 0
        assert waiting.result().returncode not in (0, 2)
    until(lambda: processes_with(f"train={corpus}") == [], "end of the ranks")


# ---- several jobs ----


def test_an_array_trains_with_three_seeds(pbs, begun):
    ran = begun["seeds"].result()
    assert ran.returncode == 0, ran.stdout
    assert re.match(r"\d+\[\]\.", ran.stdout)
    folders = list(pbs.root.glob("runs/seeds/*"))
    configs = [json.loads((folder / "config.json").read_text()) for folder in folders]
    assert sorted(config["seed"] for config in configs) == [0, 1, 2]
    assert all(
        re.search(rf"\[{config['seed']}\]", folder.name)
        for config, folder in zip(configs, folders, strict=True)
    )


def test_a_dependency_waits_for_a_good_end_and_never_starts_after_a_bad_one(pbs, until):
    good = submit(pbs, "good", "sleep 1\n")
    bad = submit(pbs, "bad", "exit 3\n")
    after_good = submit(pbs, "after_good", "echo ran\n", "-W", f"depend=afterok:{good}")
    after_bad = submit(pbs, "after_bad", "echo ran\n", "-W", f"depend=afterok:{bad}")
    whatever = submit(pbs, "whatever", "echo ran\n", "-W", f"depend=afterany:{bad}")
    for job in (after_good, after_bad, whatever):
        until(lambda job=job: pbs.run("qstat", job).returncode != 0, f"end of {job}")
    assert attribute(pbs, bad, "Exit_status") == "3"
    assert [read(pbs, f"{n}.out") for n in ("after_good", "whatever")] == ["ran\n", "ran\n"]
    assert read(pbs, "after_bad.out") == ""


def test_afterok_runs_after_an_array_of_which_a_part_failed(pbs, until):
    """The array's own Exit_status is 0; Slurm would never start the second job."""
    array = submit(pbs, "part", "exit $PBS_ARRAY_INDEX\n", "-J", "0-1")
    after = submit(pbs, "after_array", "echo ran\n", "-W", f"depend=afterok:{array}")
    until(lambda: pbs.run("qstat", after).returncode != 0, "end of the second job")
    assert read(pbs, "after_array.out") == "ran\n"


def test_before_the_time_limit_a_job_saves_submits_itself_again_and_ends(begun):
    project, ran = begun["project"], begun["limit"].result()
    assert ran.returncode == 0, ran.stdout
    log = project.log("lab1_seq2seq")
    parts = re.findall(r"job (\d+)\.\S+, part (\d)", log)
    assert [part for _, part in parts] == ["1", "2"]
    assert len({job for job, _ in parts}) == 2, "a job that submits itself again has a new id"
    assert re.findall(r"resume from .*snapshot_iter_(\d+)", log) == ["3"]
    (result,) = project.root.glob("runs/lab1_seq2seq/*/result.json")
    assert json.loads(result.read_text())["n_updates"] == 6


# ---- what the commands say ----


def test_qstat_knows_queues_and_jobs(pbs, until):
    job = submit(pbs, "seen", "sleep 600\n", "-N", "seen", "-l", "walltime=70")
    until(lambda: attribute(pbs, job, "job_state") == "R", "start of the job")
    assert attribute(pbs, job, "Resource_List.walltime") == "00:01:10"
    queue = attribute(pbs, job, "queue")
    assert re.search(rf"^{queue} ", pbs.run("qstat", "-Q").stdout, re.MULTILINE)
    assert f"Queue: {queue}" in pbs.run("qstat", "-Q", "-f", queue).stdout
    assert re.search(rf"{job} .*seen .* R {queue}", pbs.run("qstat", job).stdout)
    alternate = pbs.run("qstat", "-an1", job).stdout
    assert re.search(r"(?m)^Job ID +Username Queue +Jobname +SessID NDS TSK Memory Time", alternate)
    assert re.search(rf"{job} .* 00:01 R 00:0\d +\S+/0$", alternate.strip())
    assert pbs.run("qstat", "-u", "nobody-at-all").stdout == ""
    pbs.run("qdel", job)
    until(lambda: pbs.run("qstat", job).returncode == 35, "end of the job")
    assert "Job has finished, use -x" in pbs.run("qstat", job).stdout
    unknown = pbs.run("qstat", "999999")
    assert (unknown.returncode, unknown.stdout[:26]) == (153, "qstat: Unknown Job Id 9999")


def test_a_job_that_is_too_large_waits_and_says_why(pbs, until):
    job = submit(pbs, "large", "true\n", "-l", "select=1:ncpus=99999")
    until(lambda: "Can Never Run" in attribute(pbs, job, "comment"), "reason")
    assert attribute(pbs, job, "job_state") == "Q"
    pbs.run("qdel", job)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-q", "nowhere"), 170, "qsub: Unknown queue"),
        (("-l", "nonsense=1"), 187, "qsub: Unknown resource Resource_List.nonsense"),
        (("-Y",), 2, "qsub: invalid option -- 'Y'"),
    ],
)
def test_qsub_refuses_as_pbs_does(pbs, words, code, said):
    ran = pbs.run("qsub", *words, pbs.script("refused.sh", "true\n"))
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (code, said)


# ---- the stand-in alone ----


def test_the_stand_in_says_that_it_is_not_pbs(pbs, only_stand_in):
    assert "this is not PBS" in pbs.run("qsub", "--version").stdout


def test_a_queue_may_name_its_server_and_a_dependency_must_exist(pbs, only_stand_in):
    """Slurm takes an id that it does not know for a job that has ended well."""
    script = pbs.script("held.sh", "true\n")
    held = pbs.run("qsub", "-h", "-q", "gpu@ctl", script)
    assert held.returncode == 0, held.stdout
    assert pbs.run("qdel", held.stdout.strip()).returncode == 0
    ran = pbs.run("qsub", "-W", "depend=afterany:999999", script)
    assert (ran.returncode, ran.stdout) == (15056 % 256, "qsub: Invalid Job Dependency\n")


@pytest.mark.parametrize("site", SITES)
def test_a_lab_runs_in_the_dialect_of_a_site(only_stand_in, begun, site):
    ran = begun[site].result()
    assert ran.returncode == 0, ran.stdout
    assert f"{SITES[site]}root" in ran.stdout
    assert re.search(r"2 ranks: T\(s\) = ", ran.stdout)
