"""What does the doctor see on a compute node? `allhands doctor --job` sends it there, and waits.

`cluster_jobs/submit` does the work, so the job starts as every lab's job starts.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from allhands.labs import COURSE

PIPED = {"stdout": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
SUBMIT = COURSE.labs_file.parents[1] / "cluster_jobs" / "submit"


def command(site: str | None, level: str | None, submit: Path = SUBMIT) -> list[str]:
    """The command that submits the doctor's job and follows it; OSError without a clone."""
    if not submit.exists():
        raise FileNotFoundError(f"{submit} is missing: --job needs a clone of the project.")
    words = [sys.executable, str(submit), "doctor", "--wait"]
    words += ["--site", site] if site else []
    return words + (["--", "--level", level] if level else [])


def send(site: str | None, level: str | None, as_json: bool, submit: Path = SUBMIT) -> int:
    """Run it; return the job's exit code, or 2 if it was refused.

    as_json: print the compute node's JSON object alone; all else goes to stderr.
    """
    words = command(site, level, submit)
    wanted = {"ALLHANDS_LEVEL": level} if level in ("cpu", "gpu") else {}  # site files look at it
    environ = {**os.environ, **wanted}
    if not as_json:
        return subprocess.run(words, env=environ).returncode
    words += ["--json"] if "--" in words else ["--", "--json"]
    with subprocess.Popen(words, env=environ, **PIPED) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line.rstrip("\n"))
            print(lines[-1], file=sys.stderr, flush=True)
    print(json_object(lines))
    return process.returncode


def json_object(lines: Sequence[str]) -> str:
    """The last JSON object in a log: from a line that is "{" to the next that is "}"; or "{}"."""
    starts = [number for number, line in enumerate(lines) if line == "{"]
    for start in reversed(starts):
        if "}" in lines[start:]:
            return "\n".join(lines[start : lines.index("}", start) + 1])
    return "{}"
