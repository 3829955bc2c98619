"""All rules, in the order in which they are tried."""

from allhands.triage.rule import Rule
from allhands.triage.rules_devices import DEVICES, RANKS_DIFFER
from allhands.triage.rules_ends import CRASHES, LAST, SLOW, WAITS
from allhands.triage.rules_system import NUMBERS, SYSTEM

__all__ = ["RULES", "SLOW", "Rule"]

RULES: tuple[Rule, ...] = (
    *DEVICES,
    *RANKS_DIFFER,
    *SYSTEM,
    *NUMBERS,
    *CRASHES,
    *WAITS,
    *LAST,
)
