"""How does a participant's script become a rank of a job? It is run with what torchrun would say.

    python -m allhands.train.own_start SCRIPT.py [ARGUMENTS ...]

A job's launcher (srun, mpiexec) says which rank a process is, each in its own words. PyTorch wants
RANK, WORLD_SIZE and LOCAL_RANK: they are set here, where they are missing. A program with ChainerMN
or mpi4py needs none of this, and is not disturbed by it; if it fails on one rank, all end.

A program without any of them runs as well, once for each rank. Rank 0 says so at the end.
"""

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from allhands import launch

OTHERS = ("horovod", "jax", "tensorflow")  # they may join ranks too, in ways not looked at here
LOCAL = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "PMI_LOCAL_RANK")


def as_torchrun(environ: Mapping[str, str], ranks_here: int) -> dict[str, str]:
    """RANK, WORLD_SIZE and LOCAL_RANK, from the launcher's words; none if they are there.

    ranks_here: how many ranks a node has, where the launcher does not say the local rank.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return {}
    rank, size = launch.place(environ)
    local = next((environ[name] for name in LOCAL if name in environ), rank % max(1, ranks_here))
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(local)}


def joined() -> bool:
    """Whether this process has, at any time, been in one world with others (or may have been)."""
    if any(name in sys.modules for name in OTHERS):
        return True
    mpi = sys.modules.get("mpi4py.MPI")
    begun = mpi is not None and mpi.Is_initialized()
    if begun and (mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() > 1):
        return True
    torch_ranks = sys.modules.get("torch.distributed.distributed_c10d")
    if torch_ranks is None:
        return False
    return (
        torch_ranks.is_initialized()
        # What init_process_group leaves, also after destroy_process_group.
        or getattr(torch_ranks, "_default_pg_init_method", None) is not None
        or getattr(sys.excepthook, "__module__", "") == torch_ranks.__name__
    )


def alone(rank: int, size: int, script: str) -> str:
    """What rank 0 has to say when its program is over: "" if all is well, or for other ranks."""
    if rank != 0 or size == 1 or joined():
        return ""
    return (
        f"{size} ranks ran, and none joined the others: each trained alone on everything. Begin "
        f"with torch.distributed.init_process_group() or chainermn.create_communicator(); "
        f"`allhands check {script}` shows the lines that must change."
    )


def main() -> None:
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        given = sys.argv[1] if len(sys.argv) > 1 else "nothing"
        print(f"own_start: give the path of a Python script, not {given}.", file=sys.stderr)
        sys.exit(2)
    nodes = max(1, int(os.environ.get("ALLHANDS_NODES", "1")))
    ranks = int(os.environ.get("ALLHANDS_RANKS", "1"))
    os.environ.update(as_torchrun(os.environ, ranks // nodes))
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    script, rank = sys.argv[0], int(os.environ["RANK"])
    size = max(ranks, int(os.environ["WORLD_SIZE"]))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            _tell(alone(rank, size, script))
        raise
    _tell(alone(rank, size, script))


def _tell(said: str) -> None:
    if said:
        sys.stdout.flush()
        print(f"own_start: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
