"""Count the errors of a log: how many ranks printed each whole, how many a part, how many none.

    python handson/bug1_errorcount/count_errors.py job.log --ranks 4

Change `LABEL` to the label of your launcher, and `normalise` to what differs in your messages.
"""

import argparse
import re
from pathlib import Path

from allhands.train.faults.bug1_errorcount import count
from allhands.train.faults.bug1_errorcount_log import by_label

LABEL = r"\[(\d+)\] ?(.*)"  # MPICH's -prepend-rank: "[2] text"
# Open MPI 5's --tag-output, "[1,2]<stderr>: text":  r"\[\d+,(\d+)\]<std\w+>: ?(.*)"
# srun -l, "2: text":                                r" *(\d+): ?(.*)"


def normalise(message: str) -> str:
    """The message without addresses and numbers."""
    message = re.sub(r"0x[0-9a-fA-F]+", "<address>", message)
    return re.sub(r"(?<!\w)-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w)", "<n>", message)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("log", type=Path)
parser.add_argument("--ranks", type=int, help="of the job, if some are silent")
asked = parser.parse_args()

if not asked.log.is_file():
    parser.error(f"there is no file {asked.log}: give the log of a job")
try:
    text = asked.log.read_text(encoding="utf-8", errors="replace")
except OSError as error:
    parser.error(f"{asked.log} cannot be read ({error.strerror}): give the log of a job")
output = by_label(text, LABEL)
if not output:
    parser.error(f"no line of {asked.log} has the label {LABEL}: change LABEL")
n_ranks = max(asked.ranks or 0, max(output) + 1)
found = count(dict.fromkeys(range(n_ranks), "") | output, normalise)
for message, ranks in found["complete"].items():
    print(f"{len(ranks)} of {n_ranks} ranks {ranks}: {message}")
print(f"cut: {found['cut']}, silent: {found['silent']}")
