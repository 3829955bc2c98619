"""What is the usual cause of a difference between N ranks and one? Rules, as data.

A check that fails has facts (a dict; `begin` and `results` make it). The first rule of that check
whose `when` holds names the cause. A new mistake is a new rule, here or in the two other files of
rules. N is the number of ranks.
"""

from allhands.train.compare.begin_causes import BEGIN
from allhands.train.compare.cause import ANY, Cause, Facts
from allhands.train.compare.results_causes import RESULTS


def name(check: str, facts: Facts) -> Cause:
    """Return the first cause that fits a failed check; the last of each check always does."""
    return next(cause for cause in CAUSES if cause.check in (check, ANY) and cause.when(facts))


ENDINGS = (
    # Jobs that did not end by themselves. `ending`, `stage`, `waiting` (ranks that wait in it).
    Cause(
        ANY,
        "rank-0-hang",
        lambda f: f.get("ending") == "hang" and f["stage"] == "evaluate" and f["waiting"] == [0],
        "the evaluation runs on rank 0 only, and there is a call in it that waits for all ranks",
        "Let every rank evaluate its part; only printing belongs to rank 0.",
    ),
    Cause(
        ANY,
        "rank-condition-hang",
        lambda f: f.get("ending") == "hang",
        "a call that all ranks must make stands where only some of them come: in `if comm.rank == "
        "0`, or in a loop that is longer on one rank",
        "Move the call out of the condition, so that all ranks make the same calls in one order.",
    ),
    Cause(
        ANY,
        "too-slow",
        lambda f: f.get("ending") == "time",
        "the ranks did not wait for each other, so the work takes longer than the time limit",
        "Give a longer --time-limit, fewer --steps, or a smaller problem.",
    ),
    Cause(
        ANY,
        "different-calls",
        lambda f: f.get("ending") == "mpi",
        "the ranks were in different calls of the communicator, or gave arrays of different sizes "
        "(a layer that has values on some ranks only is enough)",
        "Make the same calls in one order on all ranks, with arrays of one size and type.",
    ),
    Cause(
        ANY,
        "rank-lost",
        lambda f: f.get("ending") == "failed",
        "a rank ended before the comparison did",
        "Mend what the sentence says; run the program alone on one rank first.",
    ),
)
CAUSES = (*ENDINGS, *BEGIN, *RESULTS)
