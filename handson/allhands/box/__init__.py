"""A cluster in a box: a real Slurm of several hosts on one machine. Linux, and root.

`up` starts one, `find` finds it, `needs.missing` says what it lacks here. Read `box.py` first, then
`keeper.py` and `inside.py` (what happens when it starts), `hosts.py`, `slurm.py` and `wire.py` (the
link with a set rate and delay); `enter.py` runs a command on a host. `pbs/` is the stand-in for
PBS.
"""

from allhands.box import needs
from allhands.box.asked import BoxError
from allhands.box.box import Box, find, up

__all__ = ["Box", "BoxError", "find", "needs", "up"]
