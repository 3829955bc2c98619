"""The doctor: `allhands doctor` says what this machine has, and what to do about what it lacks."""

from allhands.doctor.finding import LEVELS, Finding, Verdict, at_level, exit_code, verdict
from allhands.doctor.probes import probe_all
from allhands.doctor.show import last_line, render, report, to_json, write

__all__ = ["LEVELS", "Finding", "Verdict", "at_level", "exit_code", "last_line", "probe_all"]
__all__ += ["render", "report", "to_json", "verdict", "write"]
