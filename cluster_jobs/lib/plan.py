"""What does this lab's job need, and how is this site asked for it? Reads files, changes nothing.

The lab's script says what it needs: its headers, and the line `#NEEDS nodes=1 ...`. The site file
(sites/<site>.env) says how the site is asked for it. `plan` makes a `Job` of both, or raises
`Refusal` with a sentence.

Runs on a login node: only the Python that is there (3.6 or later) and bash. Paths in a Job are
relative to ROOT.
"""

import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

JOBS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(JOBS)

# What differs between schedulers; what differs between sites is in the site files. {} is the value.
Scheduler = collections.namedtuple("Scheduler", "suffix submit time output note alive cancel")
SLURM = Scheduler(
    suffix="slurm",
    submit="sbatch --parsable",
    time="--time={}",
    output="--output={}",
    note="--export=ALL,ALLHANDS_JOB={}",
    alive="squeue --noheader --jobs={} --format=%T",
    cancel="scancel {}",
)
PBS = Scheduler(
    suffix="pbs",
    submit="qsub",
    time="-l walltime={}",
    output="-o {}",
    note="-v ALLHANDS_JOB={}",
    alive="qstat {}",
    cancel="qdel {}",
)
SCHEDULERS = {"slurm": SLURM, "pbs": PBS}
HEADER_SELECT = re.compile(r"^#PBS -l select=\d+:ncpus=(\d+):mpiprocs=(\d+)", re.MULTILINE)
HEADER_TIME = re.compile(r"^#(?:SBATCH --time=|PBS -l walltime=)(\S+)", re.MULTILINE)
SITE_NAMES = (
    "SCHEDULER LEVEL QUEUE_OPTION QUEUE ACCOUNT_OPTION ACCOUNT GPU_OPTION OPTIONS MODULES"
    " CONDA_ENV CONTAINER LAUNCHER NETWORK SCRATCH AGAIN PARTS_MAX"
)

# base: runs/jobs/<lab>.<time>, the beginning of the names of the log, the note and the output.
# scheduler: a Scheduler, or None: run here. note: lines NAME=value that bash can read.
Job = collections.namedtuple("Job", "lab site scheduler script base command note")


class Refusal(Exception):
    """What was asked cannot work; the text says why, and what to do."""


# ---- reading ----


def read_site(name):
    """The ALLHANDS_ values of sites/<name>.env as bash reads them, without the prefix."""
    folder = os.path.join(JOBS, "sites")
    path = os.path.join(folder, name + ".env")
    shown = os.path.relpath(path, ROOT)
    if not os.path.exists(path):
        known = ", ".join(sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".env")))
        raise Refusal(f"There is no site '{name}'. Known: {known}. For your own, copy one of them.")
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            found = re.match(r"\s*ALLHANDS_(\w+)=", line)
            if found and found.group(1) not in SITE_NAMES.split():
                raise Refusal(
                    f"{shown}:{number}: ALLHANDS_{found.group(1)} is not a name that is known. "
                    "The names and what they mean are in sites/slurm-generic.env."
                )
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    script = 'set -ae; . "$1"; "$2" -c "$3"'
    reader = ["bash", "-c", script, "bash", path, sys.executable, show]
    ran = subprocess.run(reader, stdout=subprocess.PIPE)
    if ran.returncode != 0:
        raise Refusal(f"bash could not read {shown}. Its message is above this line.")
    values = json.loads(ran.stdout.decode().splitlines()[-1])
    site = {key[9:]: value for key, value in values.items() if key.startswith("ALLHANDS_")}
    if site.get("SCHEDULER") not in ("none", "slurm", "pbs"):
        raise Refusal(f"{shown} must set ALLHANDS_SCHEDULER to none, slurm or pbs.")
    return collections.defaultdict(str, site)


def default_site():
    """$ALLHANDS_SITE, else the name in sites/default, else local."""
    chosen = os.path.join(JOBS, "sites", "default")
    if os.environ.get("ALLHANDS_SITE") or not os.path.exists(chosen):
        return os.environ.get("ALLHANDS_SITE") or "local"
    with open(chosen) as lines:
        return lines.readline().strip()


def read_script(lab, suffix, nodes=None, ranks_per_node=None):
    """(path, text, needs) of a lab's script; needs: whole numbers by name.

    nodes, ranks_per_node: how many instead of the script's own; a lab of one rank takes no more
    than one. A lab that has GPUs has one a rank.
    """
    path = os.path.join(JOBS, f"{lab}.{suffix}")
    if not os.path.exists(path):
        known = ", ".join(sorted(f.rpartition(".")[0] for f in os.listdir(JOBS) if suffix in f))
        raise Refusal(f"There is no job script {lab}.{suffix}. Labs that have one: {known}.")
    with open(path) as script:
        text = script.read()
    needs_line = re.search(r"^#NEEDS (.*)$", text, re.MULTILINE).group(1)
    needs = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", needs_line)}
    alone = needs["nodes"] * needs["ranks_per_node"] == 1
    if nodes is not None:
        if nodes < 1 or (nodes > 1 and alone):
            raise Refusal(f"{lab} was asked to run on {nodes} nodes; it runs on {needs['nodes']}.")
        needs["nodes"] = nodes
    if ranks_per_node is not None:
        if ranks_per_node < 1 or (ranks_per_node > 1 and alone):
            raise Refusal(
                f"{lab} was asked to run {ranks_per_node} ranks on a node; it runs "
                f"{needs['ranks_per_node']}."
            )
        needs["ranks_per_node"] = ranks_per_node
        needs["gpus_per_node"] = ranks_per_node if needs["gpus_per_node"] else 0
    needs["ranks"] = needs["nodes"] * needs["ranks_per_node"]
    return os.path.relpath(path, ROOT), text, needs


# ---- deciding ----


def seconds(text):
    """A time limit HH:MM:SS in seconds. Slurm and PBS read other forms differently: refused."""
    found = re.match(r"^(\d+):([0-5]\d):([0-5]\d)$", text)
    if not found or not re.search("[1-9]", text):
        raise Refusal(f"The time '{text}' was not understood. Write it like 00:30:00 (h:min:s).")
    hours, minutes, rest = map(int, found.groups())
    return 3600 * hours + 60 * minutes + rest


def stop_after(limit_s):
    """When the trainer saves: five minutes before the limit, or at 3/4 of a short one."""
    return limit_s - min(300, limit_s // 4)


def site_options(name, site, needs):
    """Queue, account, GPU and other options as words; an option without its value is refused."""
    words = []
    for what in ("QUEUE", "ACCOUNT"):
        option, value = site[what + "_OPTION"], site[what]
        if option and not value:
            raise Refusal(
                f"Site '{name}' wants the {what.lower()} as {option}, but ALLHANDS_{what} is "
                f"empty. Write it into cluster_jobs/sites/{name}.env, or export it. If your site "
                f"has none, make ALLHANDS_{what}_OPTION empty there."
            )
        words += shlex.split(option.replace("{}", value))
    asks_gpu = site["LEVEL"] != "cpu" and needs["gpus_per_node"] > 0
    for option in (site["GPU_OPTION"] if asks_gpu else "", site["OPTIONS"]):
        try:
            words += shlex.split(option.format(**needs))
        except (KeyError, IndexError, ValueError):
            known = ", ".join("{" + need + "}" for need in sorted(needs))
            raise Refusal(
                f"Site '{name}': '{option}' was not understood. Names in braces may be: {known}."
            ) from None
    return words


def shape_options(scheduler, needs, text, words):
    """The options that change the header's number of nodes, and of ranks on a node, as words."""
    nodes, ranks = needs["nodes"], needs["ranks_per_node"]
    if scheduler is SLURM:
        return [f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
    if any("select=" in word for word in words):  # the site's GPU option says it
        return []
    cpus, of_ranks = map(int, HEADER_SELECT.search(text).groups())
    return ["-l", f"select={nodes}:ncpus={cpus // of_ranks * ranks}:mpiprocs={ranks}"]


def free_base(lab):
    """runs/jobs/<lab>.<time>, not taken yet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for more in ("", *(f"-{number}" for number in range(2, 100))):
        base = os.path.join("runs", "jobs", f"{lab}.{stamp}{more}")
        if not os.path.exists(os.path.join(ROOT, base + ".job")):
            return base
    raise Refusal(f"More than 99 jobs of {lab} in one second. Wait a moment.")


def quoted(words):
    return " ".join(shlex.quote(str(word)) for word in words)


def plan(
    lab,
    site_name,
    limit,
    suffix,
    trainer_arguments,
    nodes=None,
    ranks_per_node=None,
    dry_run=False,
):
    """Everything about the job, as a `Job`.

    limit, nodes, ranks_per_node: HH:MM:SS and numbers, or None for the script's own; suffix:
    "slurm", "pbs", or None for the site's; dry_run: the scheduler's command need not be on this
    machine.
    """
    name = site_name or default_site()
    site = read_site(name)
    scheduler = SCHEDULERS.get(site["SCHEDULER"])
    if scheduler and suffix not in (None, scheduler.suffix):
        raise Refusal(f"Site '{name}' takes .{scheduler.suffix} scripts, not .{suffix}.")
    suffix = scheduler.suffix if scheduler else suffix or "slurm"
    script, text, needs = read_script(lab, suffix, nodes, ranks_per_node)
    if any(word.partition("=")[0] == "--out" for word in trainer_arguments):
        raise Refusal("The job chooses the run folder itself: leave out --out, and see its log.")
    limit_s = seconds(limit or HEADER_TIME.search(text).group(1))
    base = free_base(lab)
    command = ["bash", script]
    if scheduler:
        command = scheduler.submit.split() + site_options(name, site, needs)
        if (nodes, ranks_per_node) != (None, None):
            command += shape_options(scheduler, needs, text, command)
        if limit:
            command += scheduler.time.format(limit).split()
        command += scheduler.output.format(base + ".out").split()
        command += [*scheduler.note.format(base + ".job").split(), script]
        if not shutil.which(command[0]) and not dry_run:
            raise Refusal(
                f"Site '{name}' needs the command '{command[0]}', which is not on this machine. "
                "Log in to the site's login node, or use --site local."
            )
    stamp = base.partition(".")[2]
    note = {
        "ALLHANDS_SITE": name,
        "ALLHANDS_LEVEL": site["LEVEL"],
        "ALLHANDS_RANKS": needs["ranks"],
        "ALLHANDS_RUN": os.path.join(site["SCRATCH"], "runs", lab, stamp),
        "ALLHANDS_LOG": base + ".log",
        "ALLHANDS_STOP_AFTER": stop_after(limit_s),
        "ALLHANDS_COMMAND": quoted(command),
    }
    lines = [f"{key}={quoted([value])}" for key, value in note.items()]
    lines.append(f"ALLHANDS_ARGS=({quoted(trainer_arguments)})")
    return Job(lab, name, scheduler, script, base, command, lines)
