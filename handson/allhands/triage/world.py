"""Who took part: the family of the launcher, the number of ranks, which process is which rank,
how each ended.
"""

import re
from dataclasses import dataclass, field

from allhands.triage.gather import Facts
from allhands.triage.marks import numbers
from allhands.triage.unlabelled import ABORTED, HOOKS, name_the_ranks

SIGNALS = {
    4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    15: "SIGTERM", 2: "SIGINT", 1: "SIGHUP", 10: "SIGBUS",
}  # fmt: skip
WORDS = {"Killed": 9, "Segmentation fault": 11, "Bus error": 7, "Out Of Memory": 9, "Aborted": 6}


@dataclass
class World:
    """The job as a whole."""

    launcher: str
    size: int
    size_said: bool = True  # False: no line speaks of it, and `size` is what was seen
    rank_of_pid: dict[int, int] = field(default_factory=dict)
    signal_of: dict[int, int] = field(default_factory=dict)  # rank -> signal that ended it
    code_of: dict[int, int] = field(default_factory=dict)  # rank -> exit code that is not 0
    node_of: dict[int, str] = field(default_factory=dict)
    first_exit: int | None = None  # the rank that, says the launcher, failed first
    warned: set[int] = field(default_factory=set)  # ranks whose NCCL wrote warnings
    aborted: bool = False  # the launcher ended the ranks that had not failed
    failed: bool = False  # something says that the job failed
    ended_well: bool = False

    def ranks_of(self, node: str) -> set[int]:
        return {rank for rank, name in self.node_of.items() if name == node}


def world_of(facts: Facts) -> World:
    world = World(launcher_of(facts), 0, size_said=bool(facts.worlds))
    name_the_ranks(facts)
    _processes(facts, world)
    world.size = _size(facts, world)
    kinds = {note.kind for note in facts.notes}
    world.aborted = bool(kinds & ABORTS) or "MPI_ABORT" in facts.words
    world.failed = bool(kinds & FAILS) or bool(world.signal_of) or bool(world.code_of)
    world.ended_well = "good_exit" in kinds or (
        not world.failed and sum(n.kind == "finished" for n in facts.notes) >= max(1, world.size)
    )
    return world


ABORTS = {
    "abort", "sigterm", "step_abort", "ended", "bad_end", "mpich_abort", "first_exit", "failed",
    "waiting_hook",
}  # fmt: skip
FAILS = ABORTS | {
    "noticed",
    "not_started",
    "grader",
    "time_limit",
    "cancelled",
    "oom_kill",
    "bad_exit",
    "signal",
    "segv",
    "hook",
}


def launcher_of(facts: Facts) -> str:
    """The launcher's family, and how it labels, as in `openmpi --tag-output`."""
    words, labels = facts.words, facts.labels
    torch = any(label.torch for label in labels)
    roles = any(label.rank_of_local for label in labels)
    elastic = bool(words & {"torchrun", "torch/distributed/run.py", "torch/distributed/elastic"})
    mpi_command = bool(words & {"mpiexec", "mpirun", "prterun"})
    mpich = bool(words & {"HYD_", "hydra", "BAD TERMINATION", "prepend-rank"})
    mpich = mpich or ("in comm 0)" in words and not words & {"srun:", "slurmstepd"})
    if words & {"AutogradeApp", "NbGraderApp"}:
        return "notebook (nbgrader)"
    if any(label.tagged for label in labels):
        command = any(
            re.match(r"\+? ?(?:\S+=\S+ )*(?:mpiexec|mpirun|prterun) ", line.text)
            for line in facts.kept
        )
        dated = any(re.match(r"\w{3} \w{3} +\d+ [\d:]+ \d{4}\[\d+\]<", t) for t in facts.raw_starts)
        if ("horovod" in words and not command) or dated:
            return "horovodrun ([N]<stream>:)"
        return "openmpi --tag-output"
    if any(label.mpich for label in labels):
        return "mpich/hydra -prepend-rank"
    if any(label.srun for label in labels):
        return "srun -l" + (" (torchrun inside)" if torch or elastic else "")
    if words & {"nbgrader", "AutogradeApp", "NbGraderApp", "CellTimeoutError"}:
        return "notebook (nbgrader)"
    notebook = words & {"notebook_launcher", "ipykernel", "Cell In[", "papermill"}
    if notebook and not elastic and not torch:
        return "notebook"
    if "dist_world_size" in words or ("deepspeed" in words and not torch and not elastic):
        return "deepspeed (unlabelled)"
    if torch or roles or elastic:
        return "torchrun --tee" if roles else "torchrun ([rankN]:)" if torch else "torchrun"
    if "horovod" in words and "horovodrun" in words:
        return "horovodrun (unlabelled)"
    if mpich:
        return "mpich/hydra (unlabelled)"
    if mpi_command or words & {"help-mpi", "MPI_ABORT", "Open MPI", "mpi4py"}:
        return "mpiexec (unlabelled)"
    if "srun:" in words:
        return "srun (unlabelled)"
    if "multiprocessing/spawn.py" in words:
        return "spawn"
    if "PBS" in words:
        return "mpiexec without labels under PBS"
    return "srun (unlabelled)" if "slurmstepd" in words else "unknown"


def _processes(facts: Facts, world: World) -> None:
    """Fill the maps of processes, signals, exit codes and nodes from the launchers' notes."""
    world.node_of.update(facts.node_of)
    rank = host = noticed = None
    stopped = False  # srun has begun to end all tasks
    for note in facts.notes:
        pid, code, node = note.get("pid"), note.get("code"), note.about.get("node")
        named = note.get("rank")
        if note.kind == "table_host":
            host = node
        elif note.kind == "table_rank":
            rank = named
            if host:
                world.node_of.setdefault(rank, host)
        elif note.kind == "table_code" and rank is not None:
            world.rank_of_pid[pid] = rank
            _ended(world, rank, code)
        elif note.kind == "failed":
            local = note.get("local")
            world.rank_of_pid.setdefault(pid, local)
            _ended(world, local, code)
        elif note.kind == "signal":
            if pid:
                world.rank_of_pid[pid] = named
            world.signal_of[named] = note.get("signal")
            world.node_of.setdefault(named, node)
        elif note.kind == "first_exit":
            world.first_exit = named if world.first_exit is None else world.first_exit
        elif note.kind == "noticed":
            noticed = named
            world.rank_of_pid[pid] = named
            world.node_of.setdefault(named, node)
        elif note.kind == "noticed_signal" and noticed is not None:
            world.signal_of[noticed] = note.get("signal")
        elif note.kind == "nccl_rank":
            world.rank_of_pid[pid] = named
            world.node_of.setdefault(named, node)
        elif note.kind == "process_exit":
            _ended(world, named, code)
        elif note.kind in {"step_abort", "cancelled"}:
            stopped = True
        elif note.kind == "task_exit":
            _tasks(world, note, stopped)
        elif note.kind in {"pid", "nccl"} and note.rank is not None:
            world.rank_of_pid.setdefault(pid, note.rank)
            if node:
                world.node_of.setdefault(note.rank, node)
        elif note.kind == "on_node" and (note.rank is None or note.rank == named):
            world.node_of.setdefault(named, node)
        elif note.kind == "bad_signal" or (note.kind == "bad_code" and code in (9, 11, 139, 137)):
            world.failed = True

    for note in facts.notes:
        if note.kind == "nccl" and "NCCL WARN" in note.text and "ibv" not in note.text:
            rank = world.rank_of_pid.get(note.get("pid"), note.rank)
            world.warned |= {rank} - {None}


def _ended(world: World, rank: int, code: int | None) -> None:
    if code is None or code == 0:
        return
    if code < 0:
        world.signal_of.setdefault(rank, -code)
    elif 128 < code < 160:
        world.signal_of.setdefault(rank, code - 128)
    else:
        world.code_of.setdefault(rank, code)


def _tasks(world: World, note, stopped: bool) -> None:
    """How srun says that tasks ended; what it killed itself (`stopped`) did not fail."""
    how = note.about["how"]
    code = re.search(r"exit code (\d{1,9})", how)
    signal = next((n for word, n in WORDS.items() if word in how), None)
    for rank in numbers(note.about["ranks"]):
        world.node_of.setdefault(rank, note.about["node"])
        if signal is not None and not (stopped and signal == 9):
            world.signal_of.setdefault(rank, signal)
        elif signal is None and code is not None:
            _ended(world, rank, int(code[1]))


def _size(facts: Facts, world: World) -> int:
    """What the log says most often, and not less than the ranks that it shows."""
    shown = set(facts.by_label) | set(world.signal_of) | set(world.code_of) | set(world.node_of)
    shown |= {r for r in facts.ranks if r < 100_000}
    named = [e.rank for e in facts.events if e.rank is not None]
    named += [n.get("rank") for n in facts.notes if n.kind in HOOKS | ABORTED and n.get("rank")]
    first_exit = -1 if world.first_exit is None else world.first_exit
    least = max([*shown, *named, first_exit]) + 1
    pids = {n.get("pid") for n in facts.notes if n.kind in {"sigterm", "failed"} and n.get("pid")}
    pids |= {n.get("pid") for n in facts.notes if n.kind == "table_code"}
    crashed = {n.get("pid") for n in facts.notes if n.kind in {"segv", "crash"} and n.get("pid")}
    least = max(least, len(pids), len(crashed))
    said = [(count, size) for size, count in facts.worlds.items() if size >= max(least, 2)]
    if said and not facts.by_label:
        return max(said)[1]
    if said:
        best = max(said)[1]
        return best if best <= 4 * least or max(said)[0] > 1 else least
    return max(least, 1)
