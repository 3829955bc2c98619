"""The doctor: `allhands doctor` says what this machine has, and what to do about what it lacks."""

from allhands.doctor.finding import Finding, exit_code, render, report, to_json
from allhands.doctor.probes import probe_all

__all__ = ["Finding", "exit_code", "probe_all", "render", "report", "to_json"]
