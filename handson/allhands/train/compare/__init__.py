"""Do N ranks give the answer of one rank? `compare(target, ranks)` says what differs, and why."""

from allhands.train.compare.checks import Check
from allhands.train.compare.comparison import Comparison, compare, compare_all

__all__ = ["Check", "Comparison", "compare", "compare_all"]
