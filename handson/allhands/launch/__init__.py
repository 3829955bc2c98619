"""Starting ranks: `mpirun` and `torchrun`, from a program or from a notebook.

    from allhands import launch
    done = launch.mpirun("hello.py", "--name", "Mika", ranks=4, time_limit_s=60)
    print(done.text(rank=0))

When the call is over, whatever way it ends, nothing of the job is left running. What goes wrong
is an exception whose text names the rank and the cause.
"""

from allhands.launch.job import LaunchError, expect_world, is_ours, place
from allhands.launch.report import Finished, Line, RanksFailed, TimeUp, WrongWorld
from allhands.launch.start import mpirun, torchrun

__all__ = [
    "Finished",
    "LaunchError",
    "Line",
    "RanksFailed",
    "TimeUp",
    "WrongWorld",
    "expect_world",
    "is_ours",
    "mpirun",
    "place",
    "torchrun",
]
