"""A cluster in a box: how does one start it, find it, run a command in it, and end it?

    from allhands import box
    with box.up(nodes=2, gpus=4) as cluster:
        cluster.run(["srun", "-N2", "hostname"])

A box is a real Slurm of several hosts on this one machine, in namespaces of the kernel. Outside of
it nothing shows but processes and one folder. Hosts: `ctl` is the login node, n1, n2, ... are the
compute nodes. All see the same files; each has a name, addresses and /dev/shm of its own.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allhands.box import needs, place
from allhands.box.asked import KEEP, Asked, BoxError, ask, check_name
from allhands.box.hosts import LINK_NAME, LOGIN

UP_LIMIT_S = 90.0
DOWN_LIMIT_S = 20.0
NAME = "box"
OF_A_JOB = re.compile(  # of a scheduler, or of the MPI that started this process
    "SLURM_|SBATCH_|SRUN_|PBS_|PJM_|SGE_|PMI_|PMIX_|OMPI_COMM_|HYDRA|MPI_LOCAL"
    "|(JOB_ID|JOB_NAME|PE_HOSTFILE|NSLOTS|NHOSTS)$"
)
TOOLS = ("qsub", "qstat", "qdel")

_keepers: dict[Path, subprocess.Popen] = {}  # of the boxes that this process has started


@dataclass(frozen=True)
class Box:
    """A box that is up. init_pid: end that process, and all of the box ends.

    rate_bit_s, delay_s: of the link net0; both None if there is none.
    """

    name: str
    folder: Path
    nodes: int
    gpus: int
    rate_bit_s: float | None
    delay_s: float | None
    init_pid: int
    host_pids: dict[str, int] = field(repr=False)  # as the box numbers its processes

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.host_pids)

    @property
    def shaped(self) -> bool:
        return self.rate_bit_s is not None or self.delay_s is not None

    def environ(self, host: str = LOGIN) -> dict[str, str]:
        """This process's environment as a command on `host` gets it: without variables of a job."""
        self._check(host)
        kept = {name: value for name, value in os.environ.items() if not OF_A_JOB.match(name)}
        paths = [str(self.folder / "bin"), kept.get("PATH", os.defpath), "/usr/sbin:/sbin"]
        kept |= {
            "PATH": ":".join(paths),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "ALLHANDS_SITE": "box",
            "ALLHANDS_BOX": self.name,
        }
        if self.shaped:
            kept["ALLHANDS_BOX_NETWORK"] = LINK_NAME
        return kept

    def command(self, words: Sequence[str], host: str = LOGIN, user: int | None = None) -> list:
        """The command line that runs `words` on a host, as `user` (default: as the caller).

        Give it the environment `environ(host)`.
        """
        self._check(host)
        if os.geteuid() != 0:
            raise BoxError("A box can be entered by root only. Put sudo before the command.")
        options = [f"--user={user}"] if user is not None else []
        words = [os.fspath(word) for word in words]
        return [sys.executable, "-m", "allhands.box.enter", *options, self.name, host, "--", *words]

    def run(
        self, words: Sequence[str], host: str = LOGIN, **options
    ) -> subprocess.CompletedProcess:
        """subprocess.run on a host, in this folder; `options` as there."""
        options = {"env": self.environ(host), **options}
        return subprocess.run(self.command(words, host), **options)

    def down(self) -> None:
        """End the box, and return when nothing is left of it."""
        end(self.folder, self.init_pid)

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_) -> None:
        self.down()

    def _check(self, host: str) -> None:
        if host != LOGIN and host not in self.host_pids:
            known = ", ".join((LOGIN, *self.host_pids))
            raise BoxError(f"Box '{self.name}' has no host {host!r}. Its hosts: {known}.")


def up(
    name: str = NAME,
    nodes: int = 4,
    gpus: int = 4,
    rate: str | float | None = None,
    delay: str | float | None = None,
) -> Box:
    """Start a box, and return when all its nodes are idle.

    gpus: on each node. rate: "1gbit", "100mbit" or bit/s; delay: "250us", "0.5ms" or seconds: of
    the link net0, which a box without both does not have. Raises BoxError.
    """
    asked = ask(name, nodes, gpus, rate, delay)
    if missing := needs.missing(link=asked.shaped):
        raise BoxError(" ".join(missing))
    with tempfile.TemporaryFile() as errors:
        starting = subprocess.Popen(
            [sys.executable, "-m", "allhands.box.keeper", asked.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            env=bare_environ(),
            start_new_session=True,
        )
        try:
            box = listen(starting, asked)
            starting.stdin.write(KEEP)
        except BaseException as error:
            starting.stdin.close()  # then the keeper ends the box
            starting.wait()
            errors.seek(0)
            sys.stderr.write(errors.read().decode(errors="replace"))
            if isinstance(error, OSError):
                raise BoxError(place.unwritten(error)) from None
            raise
        finally:
            starting.stdout.close()
        starting.stdin.close()
    _keepers[box.folder] = starting
    return box


def listen(starting: subprocess.Popen, asked: Asked) -> Box:
    """Wait for what the keeper reports, and keep it in the box's folder."""
    told: dict = {}
    text, end_s = b"", time.monotonic() + UP_LIMIT_S
    while not {"hosts", "error"} & set(told):
        wait_s = end_s - time.monotonic()
        if wait_s <= 0 or not select.select([starting.stdout], [], [], wait_s)[0]:
            raise BoxError(f"Box '{asked.name}' was not up after {UP_LIMIT_S:.0f} s. Try again.")
        more = os.read(starting.stdout.fileno(), 65536)
        if not more:
            raise BoxError(f"Box '{asked.name}' ended while it started. Try again.")
        *lines, text = (text + more).split(b"\n")
        for line in lines:
            told |= json.loads(line)
    if "logs" in told:
        raise BoxError(
            f"Box '{asked.name}' could not start: {told['error']}. Its logs:\n{told['logs']}"
        )
    if "error" in told:
        raise BoxError(told["error"])
    folder = place.folder_of(asked.name)
    write_tools(folder)
    state = {"init_pid": told["init_pid"], "host_pids": told["hosts"]}
    state |= {"outside": pid_namespace("self"), "inside": pid_namespace(told["init_pid"])}
    new = folder / f"{place.STATE}.new"
    new.write_text(json.dumps(state) + "\n", encoding="utf-8")
    new.replace(folder / place.STATE)
    return find(asked.name)


def find(name: str = NAME) -> Box:
    """The box of that name. Raises BoxError if it is not up."""
    folder = place.folder_of(check_name(name))
    if not place.lives(folder):
        others = place.names()
        also = f" Up are: {', '.join(others)}." if others else ""
        start = "allhands box up" + (f" --name {name}" if name != NAME else "")
        raise BoxError(f"No box named '{name}' is up.{also} Start one: {start}")
    try:
        state = json.loads((folder / place.STATE).read_text(encoding="utf-8"))
        asked = Asked.from_json((folder / place.ASKED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BoxError(f"Box '{name}' is just coming up, or going down. Try again.") from None
    here, init_pid = pid_namespace("self"), state["init_pid"]
    if here not in (state["outside"], state["inside"]):
        raise BoxError(f"Box '{name}' was started in another container or box. Use it there.")
    if here == state["outside"] and pid_namespace(init_pid) != state["inside"]:
        raise BoxError(f"Box '{name}' is just going down. Try again.")
    return Box(
        name=name,
        folder=folder,
        nodes=asked.nodes,
        gpus=asked.gpus,
        rate_bit_s=asked.rate_bit_s,
        delay_s=asked.delay_s,
        init_pid=init_pid if here == state["outside"] else 1,
        host_pids=state["host_pids"],
    )


def pid_namespace(process: int | str) -> str | None:
    """By which numbering of processes that process counts; None if it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/pid")
    except FileNotFoundError:
        return None


def end(folder: Path, init_pid: int) -> None:
    """Kill a box's first process, and wait until its keeper has cleaned up."""
    try:
        os.kill(init_pid, signal.SIGKILL)
    except PermissionError:
        raise BoxError("A box can be ended by root only. Put sudo before the command.") from None
    except ProcessLookupError:
        pass
    end_s = time.monotonic() + DOWN_LIMIT_S
    while place.lives(folder):
        if time.monotonic() > end_s:
            raise BoxError(
                f"The box in {folder} did not end within {DOWN_LIMIT_S:.0f} s, although its first "
                f"process {init_pid} was killed. A process of it may hang in the kernel: see "
                f"`ps -o pid,stat,wchan,args --ppid {init_pid}`."
            )
        time.sleep(0.005)
    if folder.exists():  # the keeper was killed too
        place.remove(folder)
    if started := _keepers.pop(folder, None):
        started.wait()


def write_tools(folder: Path) -> None:
    """Write the launch scripts of the PBS commands into FOLDER/bin."""
    (folder / "bin").mkdir(mode=0o755)
    python = f'env SLURM_CONF="{folder}/slurm.conf" "{sys.executable}"'
    for tool in TOOLS:
        path = folder / "bin" / tool
        path.write_text(f'#!/bin/sh\nexec {python} -m allhands.box.pbs {tool} "$@"\n')
        path.chmod(0o755)


def bare_environ() -> dict[str, str]:
    """What the daemons see of this environment: nothing that is this user's alone."""
    kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "PYTHONPATH") if key in os.environ}
    return {"PATH": needs.PATH, "HOME": "/root", **kept}
