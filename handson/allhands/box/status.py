"""How is a box? Its nodes and jobs as Slurm tells them, and what its link has carried."""

import json
from dataclasses import asdict, dataclass

from allhands.box.asked import BoxError
from allhands.box.box import Box
from allhands.box.hosts import LINK_NAME
from allhands.box.slurm import DEFAULT_PARTITION

ASK = (
    f"sinfo --noheader --Node --partition={DEFAULT_PARTITION} --format='%N|%T|%C'"
    " && echo && squeue --noheader --all --states=all --format='%i|%P|%u|%T|%M|%R|%j'"
)
LIMIT_S = 60


@dataclass(frozen=True)
class Node:
    """state: Slurm's word, such as idle, mixed, allocated, down. cpus_busy: of how many."""

    name: str
    state: str
    cpus_busy: int
    cpus: int


@dataclass(frozen=True)
class Job:
    """where: the job's nodes; of a job that waits or has failed, the reason in brackets."""

    job_id: str
    partition: str
    user: str
    state: str
    time: str
    where: str
    name: str


@dataclass(frozen=True)
class LinkState:
    """late_max_s: by how much the worst frame was late, because the switch is a program."""

    name: str
    rate_bit_s: float | None
    delay_s: float | None
    frames: int
    dropped: int
    late_max_s: float


@dataclass(frozen=True)
class Status:
    name: str
    folder: str
    init_pid: int
    gpus: int
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    link: LinkState | None

    def as_dict(self) -> dict:
        return asdict(self)


def status(box: Box) -> Status:
    """Ask the box's Slurm. Raises BoxError if it does not answer."""
    ask = ["timeout", str(LIMIT_S), "sh", "-c", ASK]
    asked = box.run(ask, cwd="/", capture_output=True, text=True)
    if asked.returncode != 0:
        said = asked.stderr.strip() or f"nothing in {LIMIT_S} s"
        raise BoxError(
            f"The Slurm of box '{box.name}' did not answer: {said}. Its logs are in "
            f"{box.folder / 'log'}; to start anew: allhands box down --name {box.name}."
        )
    return read(box, asked.stdout)


def read(box: Box, told: str) -> Status:
    """The status from what ASK printed."""
    node_lines, _, job_lines = told.partition("\n\n")
    nodes = []
    for line in node_lines.split():
        name, state, cpus = line.split("|")
        busy, _, _, total = map(int, cpus.split("/"))
        nodes.append(Node(name, state, busy, total))
    jobs = [Job(*line.split("|", maxsplit=6)) for line in job_lines.splitlines() if line]
    return Status(
        name=box.name,
        folder=str(box.folder),
        init_pid=box.init_pid,
        gpus=box.gpus,
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        link=_link(box) if box.shaped else None,
    )


def _link(box: Box) -> LinkState:
    told = json.loads((box.folder / "wire.json").read_text(encoding="utf-8"))
    counts = {name: told[name] for name in ("frames", "dropped", "late_max_s")}
    return LinkState(LINK_NAME, box.rate_bit_s, box.delay_s, **counts)
