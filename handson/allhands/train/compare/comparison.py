"""Do N ranks give the answer of one rank? The comparison of a program with itself, run alone.

    from allhands.train.compare import compare
    print(compare("lab2_cpu", ranks=2))

The ranks build the program and make a few steps; alone, with a communicator of size 1, rank 0 makes
the same steps, each with the samples of all ranks in one batch. Compared are, in this order:

    world       do the ranks find each other
    same        settings, sizes and vocabularies, on all ranks and alone; who prints
    initial     parameters at the first real step, after a broadcast if there is one
    samples     every sample exactly once an epoch, shuffled, in as many steps on each rank
    gradient    of one step, averaged over the ranks: before and after the optimizer's hooks
    parameters  after all steps
    counts      of the evaluation, with equal parameters: names that begin with n_
    metrics     likewise: all other names

`rank` is what the ranks run, `begin` and `results` say what equal means, `causes` names the usual
cause of a difference, `ending` tells how a job ended, `parts` is the adapter of a program.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands import launch
from allhands.train.compare import begin, causes, programs, results
from allhands.train.compare.checks import Check, Ending, Missing, on
from allhands.train.compare.ending import bad_ending
from allhands.train.compare.records import Records

TIME_LIMIT_S = 60.0
JUDGES: dict[str, Callable] = {
    "world": begin.world,
    "same": begin.same,
    "initial": begin.initial,
    "samples": begin.samples,
    "gradient": results.gradient,
    "parameters": results.parameters,
    "counts": results.counts,
    "metrics": results.metrics,
}


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. target: the preset or file."""

    target: str
    ranks: int
    checks: tuple[Check, ...]

    @property
    def equal(self) -> bool:
        return all(check.equal is not False for check in self.checks)

    @property
    def difference(self) -> Check | None:
        """The first check that failed."""
        return next((check for check in self.checks if check.equal is False), None)

    @property
    def first_difference(self) -> str | None:
        return self.difference.name if self.difference else None

    def as_dict(self) -> dict[str, object]:
        """The comparison as JSON has it."""
        return {
            "equal": self.equal,
            "first_difference": self.first_difference,
            "target": self.target,
            "ranks": self.ranks,
            "checks": [
                {
                    "name": check.name,
                    "equal": check.equal,
                    "seen": check.seen,
                    "cause": check.cause or None,
                    "remedy": check.remedy or None,
                    "id": check.id or None,
                }
                for check in self.checks
            ],
        }

    def __str__(self) -> str:
        words = {True: "equal", False: "DIFFERS", None: "-"}
        lines = [f"{check.name:<11} {words[check.equal]:<8} {check.seen}" for check in self.checks]
        first = self.difference
        if first is None:
            return "\n".join(
                [*lines, "", f"{self.target}: {on(self.ranks)} and the run alone are equal."]
            )
        return "\n".join(
            [
                *lines,
                "",
                f"{self.target}: {on(self.ranks)} and the run alone are not equal. The first "
                f"difference is `{first.name}`.",
                f"The usual cause: {first.cause}.",
                f"What to do: {first.remedy}",
            ]
        )


def compare(
    target: str | Path,
    ranks: int,
    *,
    steps: int = 3,
    settings: Sequence[str] = (),
    time_limit_s: float = TIME_LIMIT_S,
) -> Comparison:
    """Compare `ranks` ranks of a program with the program alone.

    target: a preset, or a .py file that defines `build(comm) -> Parts` (see `parts`) or some of the
    functions of lab 2's edits, which are then tried in a small program.
    settings: key=value changes of the preset or the small program.

    Raises ValueError if there was nothing to compare: for a target that cannot be built (the
    program's error, with rank and line), or a job that ended before all ranks had built it.
    Whatever happens, no rank is left running.
    """
    return compare_all([target], ranks, steps=steps, settings=settings, time_limit_s=time_limit_s)[
        0
    ]


def compare_all(
    targets: Sequence[str | Path],
    ranks: int,
    *,
    steps: int = 3,
    settings: Sequence[str] = (),
    time_limit_s: float = TIME_LIMIT_S,
) -> list[Comparison]:
    """Compare several programs in one start of the ranks. A program that hangs must come last."""
    targets = [str(target) for target in targets]
    if ranks < 1:
        raise ValueError(f"--ranks must be at least 1: it is {ranks}.")
    if steps < 1:
        raise ValueError(f"--steps must be at least 1: it is {steps}.")
    if not time_limit_s > 0:
        raise ValueError(f"--time-limit takes seconds greater than 0: it is {time_limit_s:g}.")
    for target in targets:
        programs.check(target, settings)
    folder = Path(tempfile.mkdtemp(prefix="allhands-compare-"))
    try:
        for number in range(len(targets)):
            (folder / str(number)).mkdir()
        request = {"targets": targets, "steps": steps, "settings": list(settings)}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        programs.write_small_corpus(folder)
        end = None
        try:
            launch.mpirun(
                "allhands.train.compare.rank",
                folder,
                ranks=ranks,
                time_limit_s=time_limit_s,
                scratch=folder,
            )
        except launch.RanksFailed as error:
            end = error
        return [
            judged(target, Records(folder / str(number)), ranks, end, time_limit_s)
            for number, target in enumerate(targets)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judged(
    target: str, records: Records, ranks: int, end: launch.RanksFailed | None, limit_s: float
) -> Comparison:
    """Read what the ranks left; `end` is how the job ended, if not well."""
    places = [records.where(rank) for rank in range(ranks)]
    over = all(place and place["left"] == "end" for place in places)
    ending = None if end is None or over else bad_ending(records, ranks, places, end, limit_s)
    return Comparison(target, ranks, tuple(all_checks(records, ranks, ending)))


def all_checks(records: Records, ranks: int, ending: Ending | None) -> list[Check]:
    """Judge the records of one program; the job's bad ending stands where it came."""
    checks: list[Check] = []
    for name, judge in JUDGES.items():
        if ending and name == ending.check:
            cause = causes.name(name, ending.facts)
            said = (name, False, ending.sentence, cause.cause, cause.remedy, cause.id)
            checks.append(Check(*said, ending.facts))
            continue
        try:
            equal, seen, facts = judge(records, ranks, checks)
        except Missing as why:
            checks.append(Check(name, None, f"not compared, since {why}"))
            continue
        if equal:
            checks.append(Check(name, True, seen, facts=facts))
        else:
            cause = causes.name(name, facts)
            checks.append(Check(name, False, seen, cause.cause, cause.remedy, cause.id, facts))
    return checks
