"""`submit` shows the exact command, does nothing in a dry run, and refuses in a sentence."""

import re
import shlex
import subprocess

import pytest

LAB = "lab1_seq2seq"
PLACE = {"ALLHANDS_QUEUE": "long", "ALLHANDS_ACCOUNT": "gr01"}


def command_of(stdout: str) -> list[str]:
    """The command line that submit shows, as words; the time in file names becomes TIME."""
    (line,) = re.findall(r"^command  (.*)$", stdout, re.MULTILINE)
    return [re.sub(r"\d{8}-\d{6}", "TIME", word) for word in shlex.split(line)]


def shown_note(stdout: str) -> dict[str, str]:
    return dict(re.findall(r"^  (ALLHANDS_\w+)=(.*)$", stdout, re.MULTILINE))


def everything_below(project) -> set[str]:
    return {str(path) for path in project.root.rglob("*")}


# ---- what is shown ----


def test_dry_run_on_slurm_shows_the_exact_command_and_does_nothing(project):
    before = everything_below(project)
    ran = project.submit(LAB, "--site", "slurm-generic", "--dry-run", **PLACE)
    assert ran.returncode == 0, ran.stderr
    assert command_of(ran.stdout) == [
        "sbatch",
        "--parsable",
        "--partition=long",
        "--account=gr01",
        "--gres=gpu:1",
        "--output=runs/jobs/lab1_seq2seq.TIME.out",
        "--export=ALL,ALLHANDS_JOB=runs/jobs/lab1_seq2seq.TIME.job",
        "cluster_jobs/lab1_seq2seq.slurm",
    ]
    assert everything_below(project) == before


def test_dry_run_on_pbs_shows_the_exact_command(project):
    ran = project.submit(LAB, "--site", "pbs-generic", "--dry-run", "--time", "00:10:00", **PLACE)
    assert " ".join(command_of(ran.stdout)) == (
        "qsub -q long -A gr01 -l select=1:ncpus=4:mpiprocs=1:ngpus=1 -l walltime=00:10:00"
        " -o runs/jobs/lab1_seq2seq.TIME.out -v ALLHANDS_JOB=runs/jobs/lab1_seq2seq.TIME.job"
        " cluster_jobs/lab1_seq2seq.pbs"
    )


@pytest.mark.parametrize("dialect", ["-W group_list={}", "-P {}", "-A {}"])
def test_the_site_chooses_the_account_option_and_not_only_its_value(project, dialect):
    project.site(
        "my_site",
        "ALLHANDS_SCHEDULER=pbs\n"
        f'ALLHANDS_ACCOUNT_OPTION="{dialect}"\nALLHANDS_ACCOUNT=gr01\n'
        'ALLHANDS_OPTIONS="-l place=scatter"\n',
    )
    ran = project.submit(LAB, "--site", "my_site", "--dry-run", ALLHANDS_ASK="no")
    words = command_of(ran.stdout)
    assert words[:3] == ["qsub", *dialect.replace("{}", "gr01").split()]
    assert words[3:5] == ["-l", "place=scatter"]


def test_no_gpu_is_asked_for_at_level_cpu(project):
    ran = project.submit(LAB, "--site", "slurm-generic", "--dry-run", ALLHANDS_LEVEL="cpu", **PLACE)
    assert not [word for word in command_of(ran.stdout) if "gpu" in word]
    assert shown_note(ran.stdout)["ALLHANDS_LEVEL"] == "cpu"


@pytest.mark.parametrize(
    ("limit", "stop_after_s"),
    [
        ([], 1500),  # the script's half hour, less five minutes
        (["--time", "02:00:00"], 6900),
        (["--time", "00:08:00"], 360),  # short: a quarter is kept
        (["--time", "100:00:00"], 359700),
    ],
)
def test_the_trainer_saves_before_the_limit(project, limit, stop_after_s):
    ran = project.submit(LAB, "--site", "slurm-generic", "--dry-run", *limit, **PLACE)
    assert shown_note(ran.stdout)["ALLHANDS_STOP_AFTER"] == str(stop_after_s)
    given = [word for word in command_of(ran.stdout) if word.startswith("--time=")]
    assert given == [f"--time={text}" for text in limit[1:]]


def test_which_site_is_used(project):
    def site(**more: str) -> str:
        return re.search(r"sites/(.*)\.env", project.submit(LAB, "--dry-run", **more).stdout)[1]

    assert site() == "local"
    project.site("my_own", "ALLHANDS_SCHEDULER=none\n")
    (project.root / "cluster_jobs/sites/default").write_text("my_own\n")
    assert site() == "my_own"
    assert site(ALLHANDS_SITE="local") == "local"


@pytest.mark.parametrize(
    "given", [f"{LAB}.slurm", f"cluster_jobs/{LAB}", f"./cluster_jobs/{LAB}.pbs"]
)
def test_a_job_may_be_named_by_its_file_as_a_shell_completes_it(project, given):
    ran = subprocess.run(
        project.command(given, "--dry-run"),
        env=project.environment(),
        cwd=project.root,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"script   {LAB}: " in ran.stdout


def test_two_variables_of_one_option_of_pbs_are_one_list(project):
    """Of several -v PBS keeps the last one: the site's would be lost."""
    project.site("my_site", 'ALLHANDS_SCHEDULER=pbs\nALLHANDS_OPTIONS="-v A=1"\n')
    words = command_of(project.submit(LAB, "--site", "my_site", "--dry-run").stdout)
    assert words.count("-v") == 1
    assert words[words.index("-v") + 1].startswith("A=1,ALLHANDS_JOB=runs/jobs/")


def test_words_that_the_terminal_cannot_show_are_no_error(project):
    words = ("--dry-run", "--", "--set", "note=\N{HIRAGANA LETTER A}")
    ran = project.submit(LAB, *words, PYTHONIOENCODING="ascii")
    assert ran.returncode == 0, ran.stderr


# ---- what is refused ----

SITE = "cluster_jobs/sites/my_site.env"


@pytest.mark.parametrize(
    ("arguments", "site_text", "sentence"),
    [
        ([f"../elsewhere/{LAB}"], None, r"no job script '\.\./elsewhere/lab1_seq2seq'"),
        ([f"{LAB}\n"], None, r"no job script 'lab1_seq2seq\\n'"),
        (["lib/run"], None, r"no job script 'lib/run'"),
        ([LAB, "--site", "../sites/local"], None, r"no site '\.\./sites/local'"),
        ([LAB, "--time", "00:30:00\n"], None, r"was not understood"),
        ([LAB, "--time", "99999:00:00"], None, r"'99999:00:00' was not understood"),
        (["lab9_nothing"], None, r"no job script lab9_nothing\.slurm.*have one:.*lab1_seq2seq"),
        (
            [LAB, "--site", "moon"],
            None,
            r"no site 'moon'.*Known:.* local,.* pbs-generic,.* slurm-generic.*allhands site init",
        ),
        ([LAB, "--site", "slurm-generic"], None, r"wants the queue as --partition=\{\}.*is empty"),
        ([LAB, "--time", "30"], None, r"time '30' was not understood.*00:30:00"),
        ([LAB, "--time", "00:00:00"], None, r"time '00:00:00' was not understood"),
        (
            [LAB, "--site", "my_site"],
            'ALLHANDS_SCHEDULER=pbs\nALLHANDS_ACCOUNT_OPTION="-P {}"\n',
            r"'my_site' wants the account as -P \{\}, but ALLHANDS_ACCOUNT is empty.*sites/my_site",
        ),
        (
            [LAB, "--site", "my_site"],
            "ALLHANDS_SCHEDULER=slurm\n",
            r"needs the command 'sbatch', which is not on this machine.*--site local",
        ),
        (
            [LAB, "--site", "my_site"],
            "ALLHANDS_SCHEDULER=pbs\n\nALLHANDS_QUEU=long\n",
            rf"{SITE}:3: ALLHANDS_QUEU is not a name that is known",
        ),
        (
            [LAB, "--site", "my_site"],
            "ALLHANDS_SCHEDULER=none\r\n",
            rf"{SITE} has line ends of Windows",
        ),
        ([LAB, "--site", "my_site"], "", rf"{SITE} must set ALLHANDS_SCHEDULER"),
        (
            [LAB, "--site", "my_site"],
            "ALLHANDS_SCHEDULER=lsf\n",
            rf"{SITE} must set ALLHANDS_SCHEDULER to none or one of slurm, pbs, sge, pjm",
        ),
        (
            [LAB, "--site", "my_site"],
            'ALLHANDS_SCHEDULER="none\n',
            rf"bash could not read {SITE}",
        ),
        (
            [LAB, "--site", "my_site"],
            'ALLHANDS_SCHEDULER=slurm\nALLHANDS_GPU_OPTION="--gres=gpu:{cards}"\n',
            r"'--gres=gpu:\{cards\}' was not understood.*\{gpus_per_node\}",
        ),
        (
            [LAB, "--site", "my_site", "--script", "pbs"],
            "ALLHANDS_SCHEDULER=slurm\n",
            r"takes \.slurm scripts, not \.pbs",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(project, arguments, site_text, sentence):
    if site_text is not None:
        project.site("my_site", site_text)
    before = everything_below(project)
    empty = project.programs.parent / "empty"  # so that no scheduler of this machine is found
    empty.mkdir()
    for program in ("bash", "env"):
        (empty / program).symlink_to(f"/usr/bin/{program}")
    ran = project.submit(*arguments, PATH=str(empty))
    assert ran.returncode == 2
    assert re.search("^submit: .*" + sentence, ran.stderr, re.MULTILINE | re.DOTALL), ran.stderr
    assert "Traceback" not in ran.stderr
    assert everything_below(project) == before


def test_a_schedulers_own_refusal_is_passed_on(project):
    project.program("sbatch", "#!/bin/bash\necho 'sbatch: error: invalid partition' >&2; exit 1\n")
    ran = project.submit(LAB, "--site", "slurm-generic", **PLACE)
    assert ran.returncode == 2
    assert "invalid partition" in ran.stderr
    assert "sbatch did not take the job" in ran.stderr
    assert not list(project.root.glob("runs/jobs/*")), "a job that is not there has no note"


@pytest.mark.parametrize(
    ("site", "command", "answer", "job_id"),
    [
        ("slurm-generic", "sbatch", "Welcome to 7 clusters\n12;main", "12"),
        ("slurm-generic", "sbatch", "12 34", None),
        ("pbs-generic", "qsub", "Welcome\n12.server", "12.server"),
        ("pbs-generic", "qsub", "Welcome", None),
        ("sge-generic", "qsub", "Please wait 3 seconds\n12", "12"),
        ("sge-generic", "qsub", 'Your job 12 ("lab1") has been submitted', "12"),
        ("wisteria", "pjsub", "[INFO] PJM 0000 pjsub Job 12 submitted.", "12"),
        ("slurm-generic", "sbatch", "\\xff", None),
        ("slurm-generic", "sbatch", "", None),
    ],
)
def test_the_job_id_is_found_in_what_the_scheduler_prints(project, site, command, answer, job_id):
    """A greeting before it is no id. Without an id the job may be there: its note stays."""
    project.program(command, f"#!/bin/bash\nprintf '{answer}'\n")
    ran = project.submit(LAB, "--site", site, **PLACE, ALLHANDS_ASK="no")
    note = project.only("runs/jobs/*.job").read_text()
    if job_id:
        assert re.search(rf"^job      {re.escape(job_id)}$", ran.stdout, re.MULTILINE), ran.stderr
        assert f"ALLHANDS_JOB_ID={job_id}\n" in note
    else:
        assert ran.returncode == 2
        assert "its answer has no job id" in ran.stderr
        assert "Look into the queue" in ran.stderr


def test_a_name_that_another_submit_has_just_taken_is_left_to_it(project):
    """Here it is `sinfo`, asked between the choice of the name and the writing of the note."""
    project.program(
        "sinfo",
        f"#!/bin/bash\nmkdir -p runs/jobs\nfor s in 0 1 2 3; do\n"
        f'    touch "runs/jobs/{LAB}.$(date -d "-$s seconds" +%Y%m%d-%H%M%S).job"\ndone\n',
    )
    project.program("sbatch", "#!/bin/bash\necho 12\n")
    ran = project.submit(LAB, "--site", "slurm-generic", **PLACE)
    assert ran.returncode == 0, ran.stderr
    (mine,) = [path for path in project.root.glob("runs/jobs/*.job") if path.stat().st_size]
    assert mine.name.endswith("-2.job")
    assert re.search(r"^note     (.*)$", ran.stdout, re.MULTILINE)[1] == f"runs/jobs/{mine.name}"


def test_a_folder_that_cannot_be_made_is_said(project):
    (project.root / "runs").touch()
    ran = project.submit(LAB)
    assert ran.returncode == 2
    assert "submit: runs/jobs could not be written or read: Not a directory." in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_wrong_use_of_the_command_line_is_code_2(project):
    assert project.submit().returncode == 2
    assert project.submit(LAB, "--script", "lsf").returncode == 2
    assert project.submit("--help").returncode == 0


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("slurm-generic", "--nodes=4 --ntasks-per-node=1"),
        ("pbs-generic", "-l select=4:ncpus=4:mpiprocs=1"),
    ],
)
def test_more_nodes_change_the_header_s_number_and_the_ranks(project, site, words):
    account = {"ALLHANDS_QUEUE": "q", "ALLHANDS_ACCOUNT": "a"}
    ran = project.submit("lab4_mgwfbp", "--site", site, "--nodes", "4", "--dry-run", **account)
    assert ran.returncode == 0, ran.stderr
    assert f" {words} " in ran.stdout
    assert "ALLHANDS_RANKS=4" in ran.stdout


@pytest.mark.parametrize(
    ("site", "level", "words"),
    [
        ("slurm-generic", "gpu", "--gres=gpu:4 --nodes=2 --ntasks-per-node=4"),
        ("pbs-generic", "gpu", "-l select=2:ncpus=16:mpiprocs=4:ngpus=4"),
        ("pbs-generic", "cpu", "-l select=2:ncpus=16:mpiprocs=4"),
    ],
)
def test_eight_ranks_on_two_nodes(project, site, level, words):
    """With a GPU each, where the level has GPUs; a script of two ranks has four CPUs for each."""
    lab = ["lab2_dataparallel", "--site", site, "--nodes", "2", "--ranks-per-node", "4"]
    ran = project.submit(*lab, "--dry-run", **PLACE, ALLHANDS_LEVEL=level)
    assert ran.returncode == 0, ran.stderr
    assert f" {words} " in ran.stdout
    assert "ALLHANDS_RANKS=8" in ran.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("lab1_seq2seq", "--nodes", "2"),
            "lab1_seq2seq was asked to run on 2 nodes; it runs on 1.",
        ),
        (("lab4_mgwfbp", "--nodes", "0"), "asked to run on 0 nodes"),
        (
            ("lab1_seq2seq", "--ranks-per-node", "2"),
            "lab1_seq2seq was asked to run 2 ranks on a node; it runs 1",
        ),
        (("lab2_dataparallel", "--ranks-per-node", "0"), "asked to run 0 ranks on a node"),
        (("lab1_seq2seq", "--", "--out", "mine"), "The job chooses the run folder itself"),
        (("lab1_seq2seq", "--", "--out=mine"), "The job chooses the run folder itself"),
    ],
)
def test_nodes_and_run_folders_that_cannot_be_are_refused(project, words, sentence):
    ran = project.submit(*words)
    assert ran.returncode == 2
    assert sentence in ran.stderr


@pytest.mark.parametrize(
    ("words", "nodes", "ranks_per_node"),
    [
        ("--nodes 2 --ranks 8", 2, 4),
        ("--ranks 8 --ranks-per-node 4", 2, 4),
        ("--nodes 4 --ranks 4", 4, 1),
        ("--ranks 4", 1, 4),  # on the script's one node
        ("--nodes 2", 2, 2),  # the script's two on each
    ],
)
def test_ranks_in_all_are_divided_over_the_nodes(project, words, nodes, ranks_per_node):
    lab = ["lab2_dataparallel", "--site", "slurm-generic", *words.split(), "--dry-run"]
    ran = project.submit(*lab, **PLACE)
    assert ran.returncode == 0, ran.stderr
    assert f" --nodes={nodes} --ntasks-per-node={ranks_per_node} " in ran.stdout
    assert f"--gres=gpu:{ranks_per_node} " in ran.stdout, "a GPU for each rank"
    note = shown_note(ran.stdout)
    assert (note["ALLHANDS_NODES"], note["ALLHANDS_RANKS"]) == (
        str(nodes),
        str(nodes * ranks_per_node),
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lab2_dataparallel --nodes 2 --ranks 5", "5 ranks do not divide over 2 nodes.*4 or 6 "),
        ("lab2_dataparallel --nodes 2 --ranks 1", "1 ranks do not divide over 2 nodes.*for 2 "),
        ("lab2_dataparallel --ranks 0", "asked to run 0 ranks"),
        ("lab1_seq2seq --ranks 2", "lab1_seq2seq was asked to run 2 ranks; it runs 1"),
        (
            "lab2_dataparallel --nodes 2 --ranks 8 --ranks-per-node 2",
            "8 ranks are not 2 nodes with 2 ranks each",
        ),
    ],
)
def test_ranks_that_cannot_be_are_refused(project, words, sentence):
    ran = project.submit(*words.split())
    assert ran.returncode == 2
    assert re.search(sentence, ran.stderr), ran.stderr


@pytest.mark.parametrize(
    ("lab", "options", "times"),
    [
        ("lab2_dataparallel", "", 1),  # the script's select has one node
        ("lab4_mgwfbp", "", 0),  # its header says it
        ("lab2_dataparallel", "-l place=scatter:excl", 0),  # the site says it
    ],
)
def test_pbs_is_told_to_take_different_hosts(project, lab, options, times):
    """By itself PBS may put two chunks on one host."""
    project.site("my_site", f'ALLHANDS_SCHEDULER=pbs\nALLHANDS_OPTIONS="{options}"\n')
    ran = project.submit(lab, "--site", "my_site", "--nodes", "2", "--dry-run")
    assert " ".join(command_of(ran.stdout)).count("-l place=scatter ") == times
    one = project.submit("lab2_dataparallel", "--site", "my_site", "--nodes", "1", "--dry-run")
    assert " ".join(command_of(one.stdout)).count("-l place=scatter ") == 0
