"""The tests of the labs, and the kernels that they start, can import `sample_course`."""

import os
import sys
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])
sys.path.insert(0, _TESTS)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_TESTS, os.environ.get("PYTHONPATH")]))
