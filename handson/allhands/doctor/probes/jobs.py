"""The scheduler and the job: does its server answer, and what has this job been given?"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Machine

SERVER_S = 5.0  # for a scheduler's server to answer


@dataclass(frozen=True)
class Scheduler:
    """program: tells it apart. ask: a command that asks its server; queues: reads the answer."""

    name: str
    programs: tuple[str, ...]
    ask: str
    queues: Callable[[str], list[str]]


def _first_words(text: str) -> list[str]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    names = [words[0].rstrip("*") for words in lines]
    return [name for name in dict.fromkeys(names) if re.fullmatch(r"[\w.@-]*\w[\w.@-]*", name)]


def _below_the_rule(text: str) -> list[str]:
    """The first words below a table's heading, which ends in a line of dashes."""
    return _first_words(text.partition("---")[2].partition("\n")[2])


SCHEDULERS = (
    Scheduler("Slurm", ("sinfo", "sbatch"), "sinfo --noheader --format=%P", _first_words),
    Scheduler("Grid Engine", ("qhost", "qsub"), "qstat -g c", _below_the_rule),
    Scheduler("PJM", ("pjstat", "pjsub"), "pjstat --rsc", lambda text: []),
    Scheduler("PBS", ("qstat", "qsub"), "qstat -Q", _below_the_rule),
)


def scheduler(machine: Machine) -> list[Finding]:
    here = [one for one in SCHEDULERS if all(machine.which(word) for word in one.programs)]
    if not here:
        return [Finding("scheduler", "good", "none: jobs run on this machine (--site local)")]
    return [_asked(machine, here[0])]


def _asked(machine: Machine, one: Scheduler) -> Finding:
    local = "Without it, jobs run on this machine: cluster_jobs/submit LAB --site local"
    named = machine.environ.get("SLURM_CONF", "") if one.name == "Slurm" else ""
    if named and not machine.has_file(Path(named)):
        seen = f"Slurm: SLURM_CONF names {named}, which is not there"
        return Finding("scheduler", "warn", seen, f"unset SLURM_CONF. {local}")
    ran = machine.run(one.ask.split(), SERVER_S)
    if ran.code == 0:
        queues = one.queues(ran.output)
        shown = ", ".join(queues[:8]) + (" ..." if len(queues) > 8 else "")
        return Finding("scheduler", "good", f"{one.name} answers" + (f": {shown}" if shown else ""))
    if one.name == "Slurm" and not named and "configuration source" in ran.output:
        seen = "Slurm's programs are here, and belong to no cluster: jobs run on this machine"
        return Finding("scheduler", "good", seen)
    why = f"no answer after {SERVER_S:.0f} s" if ran.code is None else ran.last_line
    which = f" (SLURM_CONF={named})" if named else ""
    seen = f"{one.name}'s server does not answer{which}: {why}"
    mend = "Is it the right server? unset SLURM_CONF. " if named else ""
    return Finding("scheduler", "warn", seen, f"{mend}Ask who runs the cluster. {local}")


def in_job(machine: Machine) -> bool:
    """Whether a scheduler has started this; `submit` without a scheduler sets such a name too."""
    seen = machine.environ
    names = ("SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID")
    return any(name in seen for name in names) or bool(seen.get("JOB_ID") and seen.get("NSLOTS"))


def inside_job(machine: Machine) -> list[Finding]:
    """Which job this is. In none, there is nothing to tell."""
    seen = machine.environ
    gpus = seen.get("CUDA_VISIBLE_DEVICES", seen.get("SLURM_JOB_GPUS", ""))
    given = f"GPUs {gpus}" if gpus else "no GPU"
    if seen.get("SLURM_JOB_ID", seen.get("PBS_JOBID", "")).startswith("local-"):
        return []  # `submit --site local`: no scheduler has made it
    if number := seen.get("SLURM_JOB_ID"):
        nodes = seen.get("SLURM_JOB_NODELIST", "?")
        ranks = seen.get("SLURM_NTASKS", "1")
        where = seen.get("SLURM_JOB_PARTITION", "?")
        text = f"Slurm's {number}, partition {where}, nodes {nodes}, ranks {ranks}, {given}"
        asked = seen.get("SLURM_GPUS_ON_NODE", "0")
        if asked not in ("", "0") and not gpus:
            advice = "The job was given GPUs, but programs see none: ask who runs the cluster."
            return [Finding("job", "bad", text, advice, blocks="gpu")]
        return [Finding("job", "good", text)]
    if number := seen.get("PBS_JOBID"):
        hosts = machine.text(seen.get("PBS_NODEFILE", "")).split()
        names = ", ".join(dict.fromkeys(hosts)) or "?"
        text = f"PBS's {number}, queue {seen.get('PBS_QUEUE', '?')}, nodes {names}"
        return [Finding("job", "good", f"{text}, ranks {len(hosts) or 1}, {given}")]
    if seen.get("JOB_ID") and seen.get("SGE_O_WORKDIR"):
        text = f"Grid Engine's {seen['JOB_ID']}, slots {seen.get('NSLOTS', '1')}, {given}"
        return [Finding("job", "good", text)]
    if number := seen.get("PJM_JOBID"):
        return [Finding("job", "good", f"PJM's {number}, {given}")]
    return []


def several_hosts(machine: Machine) -> bool:
    """Whether this is inside a job that has more than one host."""
    seen = machine.environ
    nodes = seen.get("ALLHANDS_NODES") or seen.get("SLURM_JOB_NUM_NODES") or seen.get("NHOSTS", "")
    if not nodes and (nodefile := seen.get("PBS_NODEFILE")):
        nodes = str(len(set(machine.text(nodefile).split())))
    return nodes.isdigit() and int(nodes) > 1
