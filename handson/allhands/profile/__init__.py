"""Are Tensor Cores really running? Profiles of a GPU program, read and judged by kernel names.

    from allhands import profile

    trace = profile.read("trace.json.gz")      # torch.profiler, nsys (sqlite, csv) or nvprof (csv)
    print(profile.report(trace))
    profile.names(), profile.trace("a100_mixed")       # the traces that come with the course

Times are in seconds, shares between 0 and 1. No framework and no GPU is needed.
"""

from allhands.profile.launches import Launches, Trace
from allhands.profile.reading import read
from allhands.profile.report import Kernel, Report, report
from allhands.profile.shelf import names, trace

__all__ = ["Kernel", "Launches", "Report", "Trace", "names", "read", "report", "trace"]
