"""The commands of the stand-in for PBS: `python -m allhands.box.pbs qsub|qstat|qdel ...`."""

import sys
from collections.abc import Sequence

from allhands.box.pbs import mom, stat
from allhands.box.pbs.qsub import qsub
from allhands.box.pbs.words import USAGE, PbsError

VERSION = "All Hands' stand-in for PBS on Slurm (this is not PBS)"


def main(argv: Sequence[str]) -> int:
    command, *rest = argv
    try:
        if rest == ["--version"]:
            print(VERSION)
            return 0
        if command == "pbs_tmrsh":
            return mom.run_on(rest[0], rest[1:])
        return {"qsub": qsub, "qstat": stat.qstat, "qdel": stat.qdel}[command](rest)
    except PbsError as error:
        if str(error):
            print(error, file=sys.stderr)
        if error.usage:
            print(USAGE, end="", file=sys.stderr)
        return error.code
    except FileNotFoundError as error:
        print(f"{command}: Slurm's command {error.filename} was not found", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
