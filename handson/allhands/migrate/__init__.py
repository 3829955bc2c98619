"""Reading a program of one's own: what usually goes wrong when it becomes data parallel?

    from allhands import migrate
    answer = migrate.check(Path("train.py"))
    print(migrate.report(answer))

Nothing of the script is imported or run: its text is followed from the first line into its own
functions (`walk.py`), and rules (`rules*.py`, data) look at the calls in their order.
"""

from allhands.migrate.check import Checked, Finding, check, check_text
from allhands.migrate.report import report, say
from allhands.migrate.rules import RULES
from allhands.migrate.sources import UnreadableScript

__all__ = [
    "RULES",
    "Checked",
    "Finding",
    "UnreadableScript",
    "check",
    "check_text",
    "report",
    "say",
]
