"""With a scheduler: submitting, requeue or resubmission after 85, and following to the end.

The schedulers here are stand-ins: small scripts that start a job as the real one does, in what
matters to the job script. Slurm runs a copy of it in the submit folder with the submitter's
variables; PBS runs it in the home folder, with no variable but its own and those of -v.
"""

import re
import signal
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
echo "scontrol $*" >> asked
bash "$SPOOL" >> "$JOB_OUTPUT" 2>&1 &
"""
SQUEUE = """#!/bin/bash
echo RUNNING
"""
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
    project.program("qstat", SQUEUE)
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
    assert "could not go back into the queue. To continue, submit the same command" in ran.stdout
    assert len(pbs.calls()) == 1


def test_a_job_that_vanished_is_said(slurm):
    slurm.program("sbatch", "#!/bin/bash\necho 7\n")
    slurm.program("squeue", "#!/bin/bash\n")
    ran = wait(slurm)
    assert ran.returncode == 1
    assert "The scheduler no longer knows job 7, and the job did not say how it ended" in ran.stdout


def test_interrupting_wait_leaves_the_job_and_says_how_to_end_it(slurm):
    slurm.program("sbatch", "#!/bin/bash\necho 7\n")
    slurm.program("squeue", "#!/bin/bash\ntouch asked_for_state\necho RUNNING\n")
    with subprocess.Popen(
        slurm.command(LAB, "--site", "my_site", "--wait"),
        env=slurm.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        slurm.wait_for("asked_for_state", running)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Job 7 goes on; to end it: scancel 7" in output


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
