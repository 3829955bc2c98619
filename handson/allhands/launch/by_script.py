"""Handing a lab's job script to `cluster_jobs/submit`, from a program or a notebook.

    sent = by_script.submit("lab0_doctor", "--site", "local")
    sent.code, sent.text                        # its exit code, and what it printed
    by_script.run_folder("lab0_doctor")         # the run folder of the last job that has ended

`submit` chooses the site and the scheduler; where there is none, it runs the script here.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from allhands.labs import COURSE
from allhands.launch.job import LaunchError
from allhands.launch.mpi import own_environ

PROJECT = COURSE.labs_file.parents[1]  # the paths that `submit` prints begin here


def run_folder(stem: str, project: Path | None = None) -> Path:
    """The run folder of the last job of a lab that has ended, as its log names it, if it is there.

    The log is asked, and not the folders: a site may have its runs elsewhere (ALLHANDS_SCRATCH).
    Raises LaunchError if no job of this lab has ended.
    """
    project = project or PROJECT
    logs = sorted(project.glob(f"runs/jobs/{stem}.*.log"), key=lambda log: log.stat().st_mtime)
    for log in reversed(logs):
        told = re.findall(r"Run folder: (.+)", log.read_text(encoding="utf-8", errors="replace"))
        if told and (folder := project / told[-1].strip()).is_dir():
            return folder
    raise LaunchError(f"no job of {stem} has ended yet: cluster_jobs/submit {stem} starts one")


@dataclass(frozen=True)
class Sent:
    """What became of one call of `submit`."""

    code: int
    text: str


def submit(*words: str, project: Path = PROJECT, environ: Mapping[str, str] = os.environ) -> Sent:
    """Run `cluster_jobs/submit WORDS...`, and print what it says as it comes.

    This Python's environment is the one that the job finds in PATH. Raises LaunchError if the
    project's job scripts are not there, as in a package without its repository.
    """
    program = project / "cluster_jobs" / "submit"
    if not program.exists():
        raise LaunchError(
            f"there is no {program}: the job scripts are in the project's repository, not in the "
            f"package; make a clone of it, and work there"
        )
    programs = str(Path(sys.executable).parent)
    found = own_environ(environ) | {"PATH": os.pathsep.join([programs, environ.get("PATH", "")])}
    said = []
    with subprocess.Popen(
        [sys.executable, str(program), *words],
        cwd=project,
        env=found,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stdout:
                said.append(line)
                print(line, end="", flush=True)
        except BaseException:  # interrupted: `submit` ends the job that runs here, then itself
            process.terminate()
            raise
    return Sent(process.returncode, "".join(said))
