"""The unit tests can import `sample_course`, the course of one tiny lab."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
