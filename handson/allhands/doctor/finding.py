"""What did the doctor see, what should one do, and at which level do the labs run?

Labs run at three levels: simulated (nothing but Python), cpu (real ranks), gpu. A finding may say
from which level on it stops them. Which findings are bad depends on the level that is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

LEVELS = ("simulated", "cpu", "gpu")
SHOWN = {"simulated": "the simulated level", "cpu": "the CPU level", "gpu": "the GPU level"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    status: "good"; "warn": the labs run, and something is lost; "bad": a lab cannot run.
    seen: what is there. advice: what to do, empty if nothing. asked: the question.
    blocks: the lowest level at which labs cannot run because of this; "" if they run at all.
    """

    name: str
    status: Literal["good", "warn", "bad"]
    seen: str
    advice: str = ""
    asked: str = ""
    blocks: Literal["", "simulated", "cpu", "gpu"] = ""


@dataclass(frozen=True)
class Verdict:
    """level: the highest at which the labs run here, or None. asked: the one that was wanted."""

    level: str | None
    asked: str
    code: int  # 0: at the level asked for; 3: only at a lower one; 1: not at all


def at_level(findings: Sequence[Finding], asked: str) -> list[Finding]:
    """The findings with the status that they have for one who wants this level.

    What stops the labs at this level is bad. What would stop them only at a higher one is not, and
    what is good needs no advice.
    """

    def judged(finding: Finding) -> Finding:
        status = finding.status
        if finding.blocks and LEVELS.index(finding.blocks) <= LEVELS.index(asked):
            status = "bad"
        elif finding.blocks and status == "bad":
            status = "warn"
        return replace(finding, status=status, advice="" if status == "good" else finding.advice)

    return [judged(finding) for finding in findings]


def verdict(findings: Sequence[Finding], asked: str) -> Verdict:
    """At which level the labs run, and the exit code that says so."""
    blocked = [LEVELS.index(finding.blocks) for finding in findings if finding.blocks]
    reached = min(blocked, default=len(LEVELS)) - 1
    level = LEVELS[reached] if reached >= 0 else None
    code = 1 if level is None else 0 if reached >= LEVELS.index(asked) else 3
    return Verdict(level, asked, code)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if anything is bad, else 0."""
    return int(any(finding.status == "bad" for finding in findings))
