"""How does a participant's script become a rank of a job? It is run with what torchrun would say.

    python -m allhands.train.own_start SCRIPT.py [ARGUMENTS ...]

A job's launcher (srun, mpiexec) says which rank a process is, each in its own words. PyTorch wants
RANK, WORLD_SIZE and LOCAL_RANK: they are set here, where they are missing. A program with ChainerMN
or mpi4py needs none of this, and is not disturbed by it; if it fails on one rank, all end.
"""

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

from allhands import launch

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
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
