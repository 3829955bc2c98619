"""Reading the log of a job with many ranks: who failed, who only followed, what to try next.

    from allhands import triage
    answer = triage.triage(["train.log"])
    print(triage.report(answer))

`triage` takes one log, or one file a rank. Its answer holds a verdict of counting with its limits,
the likely cause with the lines it stands on, and the next experiment.
"""

from allhands.triage.page import page
from allhands.triage.read import UnreadableLog
from allhands.triage.report import report, say
from allhands.triage.scan import Triage, triage
from allhands.triage.show import show

__all__ = ["Triage", "UnreadableLog", "page", "report", "say", "show", "triage"]
