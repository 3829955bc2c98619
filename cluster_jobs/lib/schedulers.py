"""How is each scheduler spoken to? One value of `Scheduler` each; sites differ in sites/*.env.

Slurm and PBS read headers of their own in the job script. Grid Engine and Fujitsu's PJM read
neither, so they get the .slurm script as the body, and everything stands on the command line.

Python 3.6 or later, no package. In the texts of commands, {} is the value.
"""

import collections
import re
import subprocess

ASK_LIMIT_S = 10

# suffix: of the script that is sent. header: does the scheduler read that script's header lines?
# job_id: finds the id in a line of what `submit` prints; some sites print a greeting before it.
# state: asks for a job; `state_of` reads the answer.
# queues: lists the queues; known: finds the names in it.
Scheduler = collections.namedtuple(
    "Scheduler", "suffix header submit job_id name time output note state state_of cancel queues"
)

# The words of the schedulers, and ours. What is not here is shown as it is.
STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "Q", "qw", "QUE", "QUEUED", "ACC"), "Pending"),
    **dict.fromkeys(("H", "hqw", "HLD"), "Held"),
    **dict.fromkeys(("RUNNING", "R", "r", "t", "Rr", "RUN", "RNA", "RNP", "RNE"), "Running"),
    **dict.fromkeys(("COMPLETING", "E", "dr", "RNO"), "Ending"),
    **dict.fromkeys(("REQUEUED", "REQUEUE_HOLD", "W", "T"), "Waiting"),
    **dict.fromkeys(("Eqw", "ERR"), "In error"),
}
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "F", "X"}


def of_slurm(text, job_id):
    """(state, reason) from a line STATE|REASON; None if the job is not there."""
    state, _, reason = (text.split("\n") or [""])[0].strip().partition("|")
    return (state, "" if reason in ("None", "") else reason) if state else None


def of_pbs(text, job_id):
    """(state, reason) from `qstat -f`: its job_state and comment lines."""
    text = re.sub(r"\n\t", "", text)  # long lines are continued after a tab
    state = re.search(r"^\s*job_state = (\w)", text, re.MULTILINE)
    reason = re.search(r"^\s*comment = (.*)$", text, re.MULTILINE)
    if not state:
        return (text.split()[-1], "") if text.strip() else None
    pending = state.group(1) in "QHW"
    return state.group(1), reason.group(1).strip() if reason and pending else ""


def of_table(text, job_id):
    """(state, "") from a table whose lines begin with the job's id: a word that is a state."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0].split(".")[0] == job_id:
            known = [word for word in words[1:] if word in STATES]
            upper = [word for word in known if len(word) > 1]  # a user may be called "r"
            return (upper or known or ["known"])[0], ""
    return None


SLURM = Scheduler(
    suffix="slurm",
    header=True,
    submit="sbatch --parsable",
    job_id=r"^(\d+)(?:;\S+)?$",  # 12, or 12;cluster
    name="--job-name={}",
    time="--time={}",
    output="--output={}",
    note="--export=ALL,ALLHANDS_JOB={}",
    state="squeue --noheader --jobs={} --format=%T|%r",
    state_of=of_slurm,
    cancel="scancel {}",
    queues="sinfo -a -h -o %R|%l|%D",  # -a: hidden ones too
)
PBS = Scheduler(
    suffix="pbs",
    header=True,
    submit="qsub",
    job_id=r"^(\d\S*)$",  # 12.server, or 12[].server
    name="-N {}",
    time="-l walltime={}",
    output="-o {}",
    note="-v ALLHANDS_JOB={}",
    state="qstat -f {}",
    state_of=of_pbs,
    cancel="qdel {}",
    queues="qstat -Q",
)
SGE = Scheduler(
    suffix="slurm",
    header=False,
    submit="qsub -terse -cwd -S /bin/bash -j y",
    job_id=r"^(?:.*?\b[Jj]ob )?(\d+)\b",  # a number, or "Your job 12 (...) has been submitted"
    name="-N {}",
    time="-l h_rt={}",
    output="-o {}",
    note="-v ALLHANDS_JOB={}",
    state="qstat",
    state_of=of_table,
    cancel="qdel {}",
    queues="qconf -sql",
)
PJM = Scheduler(
    suffix="slurm",
    header=False,
    submit="pjsub -j",
    job_id=r"^(?:.*?\b[Jj]ob )?(\d+)\b",
    name="-N {}",
    time="-L elapse={}",
    output="-o {}",
    note="-x ALLHANDS_JOB={}",
    state="pjstat",
    state_of=of_table,
    cancel="pjdel {}",
    queues="",  # every site's pjstat shows them differently
)
SCHEDULERS = {"slurm": SLURM, "pbs": PBS, "sge": SGE, "pjm": PJM}


def ask(words):
    """What a command prints; None if it is not here, fails, or takes longer than 10 s."""
    try:
        ran = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.decode("utf-8", "replace") if ran.returncode == 0 else None


def state_of(scheduler, job_id):
    """(state in our words, reason), or None: the scheduler does not know the job, or it ended.

    Raises nothing: a scheduler that does not answer counts as one that does not know the job.
    """
    found = scheduler.state_of(ask(scheduler.state.format(job_id).split()) or "", job_id)
    if found is None or found[0] in ENDED:
        return None
    return STATES.get(found[0], found[0].capitalize()), found[1]
