"""Where does the PBS stand-in keep its jobs, and how does it speak to Slurm?

The spool is the folder `pbs` beside the file that SLURM_CONF names, so a box and its jobs end
together. In it: `bin` (the commands as jobs see them), `jobs/<number>` (one folder a job), `aux`
(the node file of a running job, and its Slurm id, which the job itself does not see), and `tmp`.
A job's id is `<number>.ctl`, of an array `<number>[].ctl`, of its parts `<number>[<index>].ctl`.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.box.pbs.words import UNKNOWN_JOB, PbsError

SERVER = "ctl"
PARTS = ("jobs", "aux", "tmp")
COMMANDS = ("qsub", "qstat", "qdel", "pbs_tmrsh")


@dataclass(frozen=True)
class JobId:
    """A job, an array (index ""), or a part of an array."""

    number: int
    index: str | None = None

    def __str__(self) -> str:
        return f"{self.number}{'' if self.index is None else f'[{self.index}]'}.{SERVER}"

    @property
    def slurm(self) -> str:
        """As scontrol and scancel name it."""
        return f"{self.number}_{self.index}" if self.index else str(self.number)

    @classmethod
    def of(cls, text: str, command: str) -> "JobId":
        """Read "7", "7.ctl", "7[].ctl" or "7[3]"; `command` is who complains."""
        found = re.fullmatch(r"(\d+)(?:\[(\d*)\])?(?:\.[\w.\-]+)?", text)
        if not found:
            raise PbsError(f"{command}: illegally formed job identifier: {text}", 1)
        return cls(int(found[1]), found[2])


@dataclass(frozen=True)
class Spool:
    """The folder of the stand-in, and the Slurm behind it."""

    folder: Path
    conf: Path

    @classmethod
    def here(cls, command: str) -> "Spool":
        conf = os.environ.get("SLURM_CONF", "")
        if not conf:
            raise PbsError(
                f"{command}: this is the stand-in for PBS of a box, and there is no box here. "
                "Start one (allhands box up) and enter it (allhands box sh).",
                1,
            )
        spool = cls(Path(conf).parent / "pbs", Path(conf))
        try:
            if not (spool.folder / PARTS[-1]).exists():
                spool.make()
        except PermissionError:
            raise PbsError(
                f"{command}: the stand-in for PBS has no folder yet in this box, and only "
                "root can make it: run qstat once as root.",
                1,
            ) from None
        return spool

    def make(self) -> None:
        """The folders: every user of the box has jobs, and nobody may change another's commands."""
        for name, mode in (("", 0o755), ("bin", 0o755), *((part, 0o1777) for part in PARTS)):
            folder = self.folder / name
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(mode)  # whatever the umask says
            if name == "bin":
                self.write_commands()

    def knows(self, job: JobId) -> bool:
        return (self.folder / "jobs" / str(job.number)).is_dir()

    def job(self, job: JobId, command: str) -> Path:
        folder = self.folder / "jobs" / str(job.number)
        if not self.knows(job):
            raise PbsError(f"{command}: Unknown Job Id {job}", UNKNOWN_JOB)
        return folder

    def note(self, job: JobId, command: str) -> dict:
        """What qsub wrote down of the job."""
        return json.loads((self.job(job, command) / "job.json").read_text())

    def write_commands(self) -> None:
        """The commands for jobs: they know their Slurm, although a job does not see SLURM_CONF."""
        for name in COMMANDS:
            path = self.folder / "bin" / name
            if not path.exists():
                start = ["env", f"SLURM_CONF={self.conf}", sys.executable, "-m", "allhands.box.pbs"]
                new = path.with_name(f".{name}.{os.getpid()}")
                new.write_text(f'#!/bin/sh\nexec {shlex.join(start)} {name} "$@"\n')
                new.chmod(0o755)
                new.replace(path)

    def slurm(
        self, *words: object, stdin: str | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm; its output comes back as text."""
        own = without_slurm(os.environ if environ is None else environ)
        return subprocess.run(
            [str(word) for word in words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env=own | {"SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
        )


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that no Slurm has set."""
    return {k: v for k, v in environ.items() if not re.match("SLURMD?_|SBATCH_|SRUN_", k)}


def fields(line: str) -> dict[str, str]:
    """NAME=value pairs of a line of `scontrol --oneliner`."""
    names: Sequence[re.Match[str]] = list(re.finditer(r"(?:^|\s)([A-Za-z][\w/:\-]*)=", line))
    ends = [match.start() for match in names[1:]] + [len(line)]
    return {m[1]: line[m.end() : end].strip() for m, end in zip(names, ends, strict=True)}
