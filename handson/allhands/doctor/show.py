"""How are findings shown: for people, as JSON, and in a file that somebody who helps can read?"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from allhands.doctor.finding import SHOWN, Finding, verdict
from allhands.doctor.machine import Machine

MARKS = {"good": ("good", "green"), "warn": ("warn", "yellow"), "bad": ("bad", "bold red")}

# Environment variables that change how ranks start, talk and compute, by their beginnings.
MATTER = (
    *("ALLHANDS_", "OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "CUDA_", "NVIDIA_", "CUPY_", "CHAINER"),
    *("NCCL_", "GLOO_", "TORCH", "MASTER_", "FI_", "UCX_", "MPIR_", "MPICH_", "HYDRA_", "I_MPI_"),
    *("OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "PBS_", "PJM_", "SGE_", "PE_HOSTFILE", "JOB_ID"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "PATH", "LD_", "PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CONDA_DEFAULT_ENV", "LOADEDMODULES", "MODULEPATH", "TMPDIR", "HOSTNAME", "LANG", "LC_ALL"),
)
SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|COOKIE|CRED|AUTH|JWT|COMMENT", re.IGNORECASE)
USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def last_line(findings: Sequence[Finding], asked: str = "cpu") -> str:
    """At which level the labs run, in a sentence."""
    end = verdict(findings, asked)
    bad = [finding.name for finding in findings if finding.status == "bad"]
    warned = sum(finding.status == "warn" for finding in findings)
    mend = f"Mend first what is bad ({', '.join(bad)}), then run the doctor again."
    if end.level is None:
        return f"The labs do not run here. {mend}"
    if end.code:
        return f"The labs run here at {SHOWN[end.level]} only, not at {SHOWN[asked]}. {mend}"
    sentence = f"The labs run here, at {SHOWN[end.level]}"
    return f"{sentence}; {warned} could be better." if warned else f"{sentence}."


def to_json(findings: Sequence[Finding], asked: str = "cpu") -> str:
    """One object: good, level (the highest at which labs run, or null), level_asked, exit_code,
    and findings, a list of {"name", "status", "seen", "advice", "asked", "blocks"}.
    """
    end = verdict(findings, asked)
    content = {
        "good": not any(finding.status == "bad" for finding in findings),
        "level": end.level,
        "level_asked": asked,
        "exit_code": end.code,
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(content, indent=2)  # ASCII: any terminal and any file takes it


def report(findings: Sequence[Finding], as_json: bool = False, asked: str = "cpu") -> None:
    """Print the findings: as JSON, or for people."""
    if as_json:
        print(to_json(findings, asked))
    else:
        render(findings, asked=asked)


def grid() -> Table:
    """Three columns: mark, name, text. A narrow terminal breaks long words, and cuts none."""
    table = Table.grid(padding=(0, 2))
    for no_wrap in (True, True, False):
        table.add_column(no_wrap=no_wrap, overflow="fold")
    return table


def render(findings: Sequence[Finding], console: Console | None = None, asked: str = "cpu") -> None:
    """Print one line a finding; under what is not good, the question and what to do; the level."""
    console = console or Console()
    table = grid()
    for finding in findings:
        mark, style = MARKS[finding.status]
        table.add_row(Text(mark, style=style), Text(finding.name), Text(finding.seen))
        if finding.status != "good":
            if finding.asked:
                table.add_row("", "", Text("asked: " + finding.asked, style="dim"))
            table.add_row("", "", Text("-> " + finding.advice, style=style))
    console.print(table)
    code = verdict(findings, asked).code
    warned = any(finding.status == "warn" for finding in findings)
    style = "bold red" if code else "yellow" if warned else "green"
    console.print(Text(last_line(findings, asked), style))


def write(path: Path, findings: Sequence[Finding], machine: Machine, asked: str = "cpu") -> None:
    """Write a file for somebody who helps: JSON if its name ends so, else text. OSError if not."""
    text = to_json(findings, asked) if path.suffix == ".json" else as_text(findings, machine, asked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def as_text(findings: Sequence[Finding], machine: Machine, asked: str = "cpu") -> str:
    """Everything that helps to help, and no secret: findings, versions, environment."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    python = ".".join(map(str, machine.python))
    lines = [
        f"allhands doctor, version {machine.version('allhands') or '?'}, {now}",
        f"system: {machine.system()}",
        f"python: {python} at {machine.executable}",
        f"folder: {machine.here() or 'removed'}",
        last_line(findings, asked),
    ]
    for finding in findings:
        lines += ["", f"[{finding.status}] {finding.name}"]
        lines += [f"  asked:  {finding.asked}"] if finding.asked else []
        lines.append(f"  seen:   {finding.seen}")
        lines += [f"  advice: {finding.advice}"] if finding.advice else []
    lines += ["", "Packages that the labs name:"]
    names = [re.match(r"[\w.-]+", line) for line in machine.requirements() or []]
    for name in sorted({found[0] for found in names if found}):
        lines.append(f"  {name} {machine.version(name) or '-'}")
    lines += ["", "Environment (what matters for ranks; secrets are not shown):"]
    lines += [f"  {name}={value}" for name, value in environment(machine)]
    return "\n".join(lines)


def environment(machine: Machine) -> list[tuple[str, str]]:
    """The variables that matter, sorted; what may be a secret without its value."""
    found = sorted(item for item in machine.environ.items() if item[0].startswith(MATTER))
    return [
        (name, "(set, not shown)" if SECRET.search(name) else USER_IN_ADDRESS.sub("...", value))
        for name, value in found
    ]
