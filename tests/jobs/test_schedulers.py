"""With a scheduler: submitting, requeue or resubmission after 85, and following to the end.

The schedulers here are stand-ins: small scripts that start a job as the real one does, in what
matters to the job script. Slurm runs a copy of it in the submit folder with the submitter's
variables; PBS runs it in the home folder, with no variable but its own and those of -v; Grid Engine
and PJM run it in the submit folder, likewise, and neither reads a header.
"""

import re
import subprocess

import pytest

LAB = "lab1_seq2seq"
SLURM = """
ALLHANDS_SCHEDULER=slurm
ALLHANDS_LEVEL=gpu
ALLHANDS_GPU_OPTION="--gres=gpu:{gpus_per_node}"
"""
PBS = """
ALLHANDS_SCHEDULER=pbs
ALLHANDS_LEVEL=gpu
ALLHANDS_QUEUE_OPTION="-q {}"
ALLHANDS_QUEUE=long
"""
SBATCH = """#!/bin/bash
echo "sbatch $*" >> asked
for word; do
    case $word in
        --export=ALL,*) export "${word#--export=ALL,}" ;;
        --output=*) export JOB_OUTPUT=$word ;;
    esac
done
export SLURM_JOB_ID=$(wc -l < asked) SLURM_SUBMIT_DIR=$PWD SPOOL=$(mktemp -p .)
export JOB_OUTPUT=${JOB_OUTPUT#*=}
cp "$word" "$SPOOL"
bash "$SPOOL" >> "$JOB_OUTPUT" 2>&1 &
echo "$SLURM_JOB_ID;cluster"
"""
SCONTROL = """#!/bin/bash
[ "$1" != show ] || { echo node7; exit; }
echo "scontrol $*" >> asked
bash "$SPOOL" >> "$JOB_OUTPUT" 2>&1 &
"""
SQUEUE = """#!/bin/bash
echo "RUNNING|None"
"""
QSTAT = """#!/bin/bash
echo "    job_state = R"
"""
SGE = """
ALLHANDS_SCHEDULER=sge
ALLHANDS_LEVEL=gpu
ALLHANDS_ACCOUNT_OPTION="-g {}"
ALLHANDS_ACCOUNT=course
ALLHANDS_SHAPE_OPTION="-l node_f={nodes}"
"""
PJM = """
ALLHANDS_SCHEDULER=pjm
ALLHANDS_LEVEL=gpu
ALLHANDS_QUEUE_OPTION="-L rscgrp={}"
ALLHANDS_QUEUE=long
ALLHANDS_SHAPE_OPTION="-L node={nodes} --mpi proc={ranks}"
"""
# One stand-in for both: what differs is the option that passes a variable, and what a job is told.
BATCH = """#!/bin/bash
echo "$(basename "$0") $*" >> asked
while [ $# -gt 1 ]; do
    case $1 in VARIABLE) given=$2 ;; -o) output=$2 ;; -N) name=$2 ;; esac
    shift
done
id=$(wc -l < asked)
printf 'node8 4 x\\nnode9 4 x\\n' > hosts
env -i "HOME=$HOME" "PATH=$PATH" "PARTS=$PARTS" "CODE=$CODE" "$given" TOLD \\
    bash "$1" >> "$output" 2>&1 &
ANSWER
"""
SGE_TOLD = 'JOB_ID=$id JOB_NAME=$name NSLOTS=8 PE_HOSTFILE=hosts "SGE_O_WORKDIR=$PWD"'
PJM_TOLD = "PJM_JOBID=$id PJM_JOBNAME=$name PJM_MPI_PROC=2 PJM_O_NODEINF=hosts"
QSUB = """#!/bin/bash
echo "qsub $*" >> asked
while [ $# -gt 1 ]; do
    [ "$1" != -v ] || given=$2
    [ "$1" != -o ] || output=$PWD/$2
    shift
done
id=$(wc -l < asked).server
cd "$HOME/elsewhere"
env -i "HOME=$PWD" "PATH=$PATH" "PARTS=$PARTS" "CODE=$CODE" "$given" PBS_JOBID=$id \
    "PBS_O_WORKDIR=$OLDPWD" PBS_JOBNAME=x bash "$OLDPWD/$1" >> "$output" 2>&1 &
echo $id
"""


@pytest.fixture
def slurm(project):
    project.site("my_site", SLURM)
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL), ("squeue", SQUEUE)):
        project.program(name, text)
    return project


@pytest.fixture
def pbs(project):
    project.site("my_site", PBS)
    (project.root / "elsewhere").mkdir()
    project.program("qsub", QSUB.replace("$HOME/elsewhere", str(project.root / "elsewhere")))
    project.program("qstat", QSTAT)
    return project


@pytest.fixture
def sge(project):
    text = BATCH.replace("VARIABLE", "-v").replace("TOLD", SGE_TOLD).replace("ANSWER", "echo $id")
    project.site("my_site", SGE)
    project.program("qsub", text)
    rows = "".join(f"{number} 0.5 lab1 r r\n" for number in (1, 2, 3))
    project.program("qstat", f"#!/bin/bash\necho '{rows}'\n")
    return project


@pytest.fixture
def pjm(project):
    answer = 'echo "[INFO] PJM 0000 pjsub Job $id submitted."'
    text = BATCH.replace("VARIABLE", "-x").replace("TOLD", PJM_TOLD).replace("ANSWER", answer)
    project.site("my_site", PJM)
    project.program("pjsub", text)
    rows = "".join(f"{number} lab1 RUNNING\n" for number in (1, 2, 3))
    project.program("pjstat", f"#!/bin/bash\necho '{rows}'\n")
    return project


def asked(project) -> list[str]:
    """What the scheduler was asked for, without times."""
    return re.sub(r"\d{8}-\d{6}", "TIME", (project.root / "asked").read_text()).splitlines()


def wait(project, **more: str):
    return project.submit(LAB, "--site", "my_site", "--wait", **more)


def test_slurm_requeues_until_the_training_is_done(slurm):
    ran = wait(slurm, PARTS="3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert asked(slurm)[1:] == ["scontrol requeue 1"] * 2
    assert asked(slurm)[0].startswith("sbatch --parsable --gres=gpu:1 --output=")
    calls = slurm.calls()
    assert len(calls) == 3
    assert calls[0] == calls[1] == calls[2]
    assert calls[0][:2] == ["train", "lab1_gpu"]
    for part in (1, 2, 3):
        assert f"trained part {part}" in ran.stdout, "--wait follows the log over all parts"


def test_slurm_resubmits_where_the_site_forbids_requeueing(slurm):
    slurm.site("my_site", SLURM + "ALLHANDS_AGAIN=resubmit\n")
    ran = wait(slurm, PARTS="3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = asked(slurm)
    assert len(lines) == 3
    assert lines[0] == lines[1] == lines[2], "the same command, with the same note"
    assert len(slurm.calls()) == 3


def test_pbs_resubmits_itself_with_the_same_options_and_run_folder(pbs):
    ran = wait(pbs, PARTS="3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = asked(pbs)
    assert len(lines) == 3
    assert lines[0] == lines[1] == lines[2]
    assert lines[0].startswith("qsub -q long -o runs/jobs/")
    assert len(pbs.calls()) == 3, "one run folder: the job went on where it was"
    note = pbs.only("runs/jobs/*.job").read_text()
    assert re.findall(r"^ALLHANDS_JOB_ID=(.*)$", note, re.MULTILINE)[-1] == "3.server"
    assert re.findall(r"job (\d\.server), part (\d)", ran.stdout) == [
        ("1.server", "1"),
        ("2.server", "2"),
        ("3.server", "3"),
    ]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (
            "sge",
            "qsub -terse -cwd -S /bin/bash -j y -g course -l node_f=1 -N lab1_seq2seq"
            " -l h_rt=00:30:00 -o runs/jobs/lab1_seq2seq.TIME.out"
            " -v ALLHANDS_JOB=runs/jobs/lab1_seq2seq.TIME.job cluster_jobs/lab1_seq2seq.slurm",
        ),
        (
            "pjm",
            "pjsub -j -L rscgrp=long -L node=1 --mpi proc=1 -N lab1_seq2seq -L elapse=00:30:00"
            " -o runs/jobs/lab1_seq2seq.TIME.out"
            " -x ALLHANDS_JOB=runs/jobs/lab1_seq2seq.TIME.job cluster_jobs/lab1_seq2seq.slurm",
        ),
    ],
)
def test_a_scheduler_that_reads_no_header_is_told_everything_and_resubmits(
    scheduler, words, request
):
    project = request.getfixturevalue(scheduler)
    ran = wait(project, PARTS="3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert asked(project) == [words] * 3
    assert len(project.calls()) == 3
    assert re.findall(r"job (\d), part (\d)", ran.stdout) == [("1", "1"), ("2", "2"), ("3", "3")]


@pytest.mark.parametrize("scheduler", ["sge", "pjm"])
def test_a_site_without_headers_must_say_how_nodes_are_asked_for(scheduler, request):
    project = request.getfixturevalue(scheduler)
    site = project.root / "cluster_jobs/sites/my_site.env"
    site.write_text(re.sub("ALLHANDS_SHAPE_OPTION=.*", "", site.read_text()))
    ran = wait(project)
    assert ran.returncode == 2
    assert "reads no header of the script. ALLHANDS_SHAPE_OPTION must say" in ran.stderr
    assert not (project.root / "asked").exists()


@pytest.mark.parametrize(
    ("scheduler", "head"),
    [("slurm", "node7"), ("pbs", "node5"), ("sge", "node8"), ("pjm", "node8"), (None, "localhost")],
)
def test_ranks_of_several_nodes_know_where_to_meet(scheduler, head, request):
    """The first node, as the scheduler writes it, and a port that belongs to the job."""
    project = request.getfixturevalue(scheduler or "project")
    if scheduler == "pbs":
        (project.root / "elsewhere/nodes").write_text("node5\nnode5\nnode3\nnode3\n")
        qsub = project.programs / "qsub"
        text = qsub.read_text().replace("PBS_JOBNAME=x", 'PBS_JOBNAME=x "PBS_NODEFILE=$PWD/nodes"')
        qsub.write_text(text)
    ran = wait(project) if scheduler else project.submit(LAB)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = project.only("runs/lab1_seq2seq/*/environment").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["MASTER_ADDR"] == head
    assert 20000 <= int(seen["MASTER_PORT"]) < 32000, "below the ports that systems give away"
    if scheduler:
        assert seen["MASTER_PORT"] == "20001", "of job 1"
    assert (seen["ALLHANDS_NODES"], seen["ALLHANDS_RANKS"]) == ("1", "1"), "as submit asked"


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_wait_gives_the_jobs_own_exit_code(scheduler, request):
    assert wait(request.getfixturevalue(scheduler), CODE="7").returncode == 7


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_arguments_with_commas_and_spaces_survive_the_scheduler(scheduler, request):
    project = request.getfixturevalue(scheduler)
    ran = project.submit(LAB, "--site", "my_site", "--wait", "--", "--set", "note=a, b 'c'")
    assert ran.returncode == 0
    assert project.calls()[0][-2:] == ["--set", "note=a, b 'c'"]


def test_without_wait_it_prints_the_job_id_and_the_log_and_returns(slurm):
    slurm.program("sbatch", "#!/bin/bash\necho 12345\n")
    ran = slurm.submit(LAB, "--site", "my_site")
    assert ran.returncode == 0
    assert re.search(r"^job      12345$", ran.stdout, re.MULTILINE)
    assert re.search(
        r"^log      runs/jobs/lab1_seq2seq\.\d{8}-\d{6}\.log$", ran.stdout, re.MULTILINE
    )


def test_a_refused_resubmission_is_said_and_keeps_what_was_saved(pbs):
    """A queue that closes between two parts: the job ends with 1 and says how to go on."""
    pbs.program(
        "qsub",
        (pbs.programs / "qsub")
        .read_text()
        .replace("while", '[ "$(wc -l < asked)" = 1 ] || exit 1\nwhile', 1),
    )
    ran = wait(pbs, PARTS="3")
    assert ran.returncode == 1
    assert "could not go back into the queue. What was saved is in runs/lab1_seq2seq/" in ran.stdout
    assert len(pbs.calls()) == 1


def test_a_site_that_greets_does_not_hide_the_next_part(pbs):
    """`qsub` prints a line before the id, for the second part too."""
    text = (pbs.programs / "qsub").read_text()
    pbs.program("qsub", text.replace("echo $id\n", "echo Welcome; echo $id\n"))
    ran = wait(pbs, PARTS="2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "ALLHANDS_JOB_ID=2.server\n" in pbs.only("runs/jobs/*.job").read_text()


@pytest.mark.parametrize(("kind", "variable"), [("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID")])
def test_a_script_submitted_without_submit_takes_its_schedulers_generic_site(
    project, kind, variable
):
    """A bare `sbatch script` has no note: level gpu, and a run folder named by the job."""
    ran = subprocess.run(
        ["bash", f"cluster_jobs/{LAB}.{kind}"],
        env=project.environment(**{variable: "41"}),
        cwd=project.root,
        timeout=60,
    )
    assert ran.returncode == 0
    assert project.only("runs/*/41/calls").read_text().startswith("train|lab1_gpu|--out|runs/")
