"""A course of one tiny lab, for the tests of what is common to all labs.

Its folder's parent must be on the Python path, in the kernel too.
"""

from pathlib import Path

from allhands.grade.desk import Desk
from allhands.labs import Course

_HERE = Path(__file__).parent
COURSE = Course(_HERE / "labs.toml", _HERE / "src", _HERE / "notebooks", "sample_course.checks")


def desk() -> Desk:
    return Desk("sample", COURSE)
