"""What does a job need, and how is this site asked for it? Reads files, changes nothing.

A job's script says what it needs: its headers, and the line `#NEEDS nodes=1 ...`. The site file
(sites/<site>.env) says how the site is asked for it. `plan` makes a `Job` of both, or raises
`Refusal` with a sentence.

Runs on a login node: only the Python that is there (3.6 or later) and bash. Paths in a Job are
relative to ROOT.
"""

import collections
import os
import re
import shlex
import shutil
import time

from schedulers import PBS, SCHEDULERS, SLURM
from sites import (
    JOBS,
    ROOT,
    Refusal,
    default_site,
    read_site,
    refuse_too_much,
    refuse_unknown_account,
    refuse_unknown_queue,
    seconds,
    site_options,
)

HEADER_SELECT = re.compile(r"^#PBS -l select=\d+:ncpus=(\d+):mpiprocs=(\d+)", re.MULTILINE)
HEADER_CPUS = re.compile(r"^#SBATCH --cpus-per-task=(\d+)", re.MULTILINE)
HEADER_TIME = re.compile(r"^#(?:SBATCH --time=|PBS -l walltime=)(\S+)", re.MULTILINE)
# What a script needs that does not say it. grows: a script of one rank that takes more, if asked.
# private: its note, log and output are for the owner alone.
NEEDS = {"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 0, "grows": 0, "private": 0}

# base: runs/jobs/<name>.<time>, the beginning of the names of the log, the note and the output.
# scheduler: a Scheduler, or None: run here. note: lines NAME=value that bash can read.
Job = collections.namedtuple(
    "Job", "name site scheduler script base command note limit_s needs private"
)

# What is asked on the command line; None: as the script says.
Asked = collections.namedtuple("Asked", "nodes ranks ranks_per_node limit")
AS_WRITTEN = Asked(None, None, None, None)


# ---- reading ----


def stem_of(text):
    """The stem of a job that is given as a stem, a file's name, or a path to a script of JOBS.

    A path counts from the working folder, as a shell completes it.
    """
    folder, name = os.path.split(text)
    stem = re.sub(r"\.(slurm|pbs)$", "", name)
    if not re.fullmatch(r"\w[\w.+-]*", stem) or (folder and not same_folder(folder, JOBS)):
        raise Refusal(
            f"There is no job script {text!r}. A job is a script of the folder cluster_jobs, such "
            "as lab1_seq2seq."
        )
    return stem


def same_folder(one, other):
    return os.path.realpath(one) == os.path.realpath(other)


def read_script(name, suffix):
    """(path, text, needs) of a job's script; needs: whole numbers by name."""
    path = os.path.join(JOBS, f"{name}.{suffix}")
    if not os.path.exists(path):
        known = ", ".join(
            sorted(f.rpartition(".")[0] for f in os.listdir(JOBS) if f.endswith("." + suffix))
        )
        raise Refusal(f"There is no job script {name}.{suffix}. Jobs that have one: {known}.")
    with open(path, encoding="utf-8", errors="replace") as script:
        text = script.read()
    line = re.search(r"^#NEEDS (.*)$", text, re.MULTILINE)
    said = re.findall(r"(\w+)=(\d+)", line.group(1)) if line else []
    needs = dict(NEEDS)
    needs.update((word, int(number)) for word, number in said)
    cpus, of_ranks = 1, 1
    if HEADER_CPUS.search(text):
        cpus = int(HEADER_CPUS.search(text).group(1))
    elif HEADER_SELECT.search(text):
        cpus, of_ranks = map(int, HEADER_SELECT.search(text).groups())
    needs["cpus_per_rank"] = cpus // of_ranks
    return os.path.relpath(path, ROOT), text, needs


def shaped(name, needs, asked):
    """The needs with the nodes and ranks that were asked for. A script of GPUs has one a rank."""
    needs = dict(needs)
    own = needs["nodes"], needs["ranks_per_node"]
    ranks = own[0] * own[1]
    alone = own == (1, 1) and not needs["grows"]
    nodes = needs["nodes"] if asked.nodes is None else asked.nodes
    if nodes < 1 or (nodes > 1 and alone):
        raise Refusal(f"{name} was asked to run on {nodes} nodes; it runs on {own[0]}.")
    per_node = needs["ranks_per_node"] if asked.ranks_per_node is None else asked.ranks_per_node
    if per_node < 1 or (per_node > 1 and alone):
        raise Refusal(f"{name} was asked to run {per_node} ranks on a node; it runs {own[1]}.")
    if asked.ranks is not None:
        if asked.ranks < 1 or (asked.ranks > 1 and alone):
            raise Refusal(f"{name} was asked to run {asked.ranks} ranks; it runs {ranks}.")
        if asked.ranks_per_node is not None and asked.nodes is None:
            nodes = max(1, asked.ranks // per_node)
        elif asked.nodes is None and asked.ranks < nodes:
            nodes = asked.ranks
        if asked.ranks % nodes:
            less = asked.ranks // nodes * nodes
            better = [number for number in (less, less + nodes) if number]
            raise Refusal(
                f"{asked.ranks} ranks do not divide over {nodes} nodes. Ask for "
                f"{' or '.join(map(str, better))} ranks, or for another --nodes."
            )
        if asked.ranks_per_node is not None and asked.ranks != nodes * per_node:
            raise Refusal(
                f"{asked.ranks} ranks are not {nodes} nodes with {per_node} ranks each. Leave out "
                "--ranks or --ranks-per-node."
            )
        per_node = asked.ranks // nodes
    if per_node != own[1]:
        needs["gpus_per_node"] = per_node if needs["gpus_per_node"] else 0
    needs.update(nodes=nodes, ranks_per_node=per_node, ranks=nodes * per_node)
    needs["gpus"] = nodes * needs["gpus_per_node"]
    needs["cpus_per_node"] = per_node * needs["cpus_per_rank"]
    return needs


# ---- deciding ----


def stop_after(limit_s):
    """When the trainer saves: five minutes before the limit, or at 3/4 of a short one."""
    return limit_s - min(300, limit_s // 4)


def shape_options(name, site, scheduler, needs, words):
    """The options for the number of nodes, and of ranks on a node, where the site has none."""
    nodes, ranks = needs["nodes"], needs["ranks_per_node"]
    if site["SHAPE_OPTION"]:
        return []
    if scheduler is SLURM:
        return [f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
    if scheduler is PBS:
        if any("select=" in word for word in words):  # the site's GPU option says it
            return []
        return ["-l", f"select={nodes}:ncpus={needs['cpus_per_node']}:mpiprocs={ranks}"]
    raise Refusal(
        f"Site '{name}': its scheduler reads no header of the script. ALLHANDS_SHAPE_OPTION must "
        f"say how nodes and ranks are asked for. See the site files for {site['SCHEDULER']}."
    )


def free_base(name):
    """runs/jobs/<name>.<time>, not taken yet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for more in ("", *(f"-{number}" for number in range(2, 100))):
        base = os.path.join("runs", "jobs", f"{name}.{stamp}{more}")
        if not os.path.exists(os.path.join(ROOT, base + ".job")):
            return base
    raise Refusal(f"More than 99 jobs of {name} in one second. Wait a moment.")


def quoted(words):
    return " ".join(shlex.quote(str(word)) for word in words)


def command_of(site_name, site, name, needs, asked, time_option, scattered, base, script):
    """The scheduler's command line, as words.

    time_option: HH:MM:SS, or None: as the header; scattered: the header places the nodes apart.
    """
    scheduler = SCHEDULERS[site["SCHEDULER"]]
    command = scheduler.submit.split() + site_options(site_name, site, needs)
    reshaped = (asked.nodes, asked.ranks, asked.ranks_per_node) != (None, None, None)
    if reshaped or not scheduler.header:
        command += shape_options(site_name, site, scheduler, needs, command)
    if scheduler is PBS and needs["nodes"] > 1:  # else it may put both chunks on one host
        placed = scattered or any("place=" in word for word in command)
        command += [] if placed else ["-l", "place=scatter"]
    if not scheduler.header:
        command += scheduler.name.format(name).split()
    if time_option:
        command += scheduler.time.format(time_option).split()
    command += scheduler.output.format(base + ".out").split()
    note = scheduler.note.format(base + ".job").split()
    if note[0] == "-v" and "-v" in command:  # of several -v PBS keeps the last one alone
        command[command.index("-v") + 1] += "," + note[1]
        note = []
    return [*command, *note, script]


def plan(name, site_name, suffix, trainer_arguments, asked=AS_WRITTEN, dry_run=False):
    """Everything about the job, as a `Job`.

    suffix: "slurm", "pbs", or None for the site's; asked: an `Asked`; dry_run: the scheduler's
    command need not be on this machine.
    """
    site_name = site_name or default_site()
    site = read_site(site_name)
    scheduler = SCHEDULERS.get(site["SCHEDULER"])
    if scheduler and suffix not in (None, scheduler.suffix):
        raise Refusal(f"Site '{site_name}' takes .{scheduler.suffix} scripts, not .{suffix}.")
    suffix = scheduler.suffix if scheduler else suffix or "slurm"
    script, text, needs = read_script(name, suffix)
    if site["LEVEL"] == "cpu":
        needs["gpus_per_node"] = 0
    needs = shaped(name, needs, asked)
    if any(word.partition("=")[0] == "--out" for word in trainer_arguments):
        raise Refusal("The job chooses the run folder itself: leave out --out, and see its log.")
    header = HEADER_TIME.search(text)
    limit = asked.limit or (header.group(1) if header else "00:30:00")
    limit_s = seconds(limit)
    refuse_too_much(site_name, site, needs, limit_s)
    base = free_base(name)
    command = ["bash", script]
    if scheduler:
        in_header = header and scheduler.header and not asked.limit
        option, scattered = None if in_header else limit, "#PBS -l place=" in text
        command = command_of(site_name, site, name, needs, asked, option, scattered, base, script)
        if not shutil.which(command[0]) and not dry_run:
            raise Refusal(
                f"Site '{site_name}' needs the command '{command[0]}', which is not on this "
                "machine. Log in to the site's login node, or use --site local."
            )
        if site["ASK"] != "no":
            refuse_unknown_queue(site_name, site, needs, limit_s)
            refuse_unknown_account(site_name, site)
    note = {
        "ALLHANDS_SITE": site_name,
        "ALLHANDS_LEVEL": site["LEVEL"],
        "ALLHANDS_NAME": name,
        "ALLHANDS_RANKS": needs["ranks"],
        "ALLHANDS_NODES": needs["nodes"],
        "ALLHANDS_RUN": os.path.join(site["SCRATCH"], "runs", name, base.partition(".")[2]),
        "ALLHANDS_LOG": base + ".log",
        "ALLHANDS_STOP_AFTER": stop_after(limit_s),
        "ALLHANDS_COMMAND": quoted(command),
    }
    lines = [f"{key}={quoted([value])}" for key, value in note.items()]
    lines.append(f"ALLHANDS_ARGS=({quoted(trainer_arguments)})")
    return Job(
        name, site_name, scheduler, script, base, command, lines, limit_s, needs, needs["private"]
    )
