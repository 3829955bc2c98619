"""Do N ranks give the answer of one rank? The comparison of a program with itself, run alone.

    from allhands.train.compare import compare
    print(compare("lab2_cpu", ranks=2))

The ranks build the program and make a few steps; alone, with a communicator of size 1, rank 0 makes
the same steps, each with the samples of all ranks in one batch. Compared are, in this order:

    world       do the ranks find each other
    same        settings, sizes and vocabularies, on all ranks and alone
    initial     parameters at the first real step, after a broadcast if there is one
    samples     every sample exactly once an epoch, shuffled, in as many steps on each rank
    gradient    of one step, as the update uses it (averaged, clipped)
    parameters  after all steps
    counts      of the evaluation, with equal parameters: names that begin with n_
    metrics     likewise: all other names

`compare_rank` is what the ranks run, `compare_checks` says what equal means, `compare_causes` names
the usual cause of a difference, `parts` is the adapter of a program.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands import launch
from allhands.train import compare_begin, compare_causes, compare_programs, compare_results
from allhands.train.compare_checks import Check, Ending, Missing, on, ranks_named
from allhands.train.compare_records import Records

TIME_LIMIT_S = 60.0
JUDGES: dict[str, Callable] = {
    "world": compare_begin.world,
    "same": compare_begin.same,
    "initial": compare_begin.initial,
    "samples": compare_begin.samples,
    "gradient": compare_results.gradient,
    "parameters": compare_results.parameters,
    "counts": compare_results.counts,
    "metrics": compare_results.metrics,
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

    Raises ValueError for a target that cannot be built: the program's error, with rank and line.
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
        compare_programs.check(target, settings)
    folder = Path(tempfile.mkdtemp(prefix="allhands-compare-"))
    try:
        for number in range(len(targets)):
            (folder / str(number)).mkdir()
        request = {"targets": targets, "steps": steps, "settings": list(settings)}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        compare_programs.write_small_corpus(folder)
        end = None
        try:
            launch.mpirun(
                "allhands.train.compare_rank", folder, ranks=ranks, time_limit_s=time_limit_s
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


def bad_ending(
    records: Records,
    ranks: int,
    places: list[dict | None],
    end: launch.RanksFailed,
    limit_s: float,
) -> Ending:
    """Say how the job ended. ValueError if the program raised an error of its own."""
    raised = {rank: one for rank, one in enumerate(records.of_ranks("raised", ranks)) if one}
    own = {rank: one for rank, one in raised.items() if not one["by_mpi"]}
    if own:
        raise ValueError(own_error(own, ranks))
    for rank, one in raised.items():
        where = f" ({one['place']})" if one["place"] else ""
        sentence = f"in `{one['stage']}` rank {rank} got from MPI: {one['what']}{where}"
        return Ending("mpi", one["stage"], sentence)
    known = {rank: place for rank, place in enumerate(places) if place}
    stage = slowest_stage(known)
    hang = (records.folder / "hang").exists()
    if not hang and not isinstance(end, launch.TimeUp):
        kind = "mpi" if "aborted the job" in str(end) else "failed"
        return Ending(kind, stage, f"in `{stage}`: {end}" if stage else str(end))
    inside = [rank for rank, place in known.items() if place["now"] == stage]
    left = [rank for rank in known if rank not in inside]
    waits = hang or (bool(known) and all(place["waits"] for place in known.values()))
    if left and inside:
        verb = {(True, 1): "waits", (True, 2): "wait", (False, 1): "is", (False, 2): "are"}
        still = f"still {verb[waits, min(len(inside), 2)]} in it"
        seen = f"{ranks_named(left)} left `{stage}`; {ranks_named(inside)} {still}"
    else:
        seen = f"all ranks {'wait' if waits else 'are'} in `{stage}`"
    after = "" if hang else f" after {limit_s:g} s"
    spots = [(rank, known[rank]["place"]) for rank in inside if known[rank]["place"]]
    where = "; ".join(f"{ranks_named([rank])} at {place}" for rank, place in spots)
    seen += after + (f" ({where})" if where else "")
    return Ending("hang" if waits else "time", stage, seen, tuple(inside))


def slowest_stage(known: dict[int, dict]) -> str:
    """The stage in which some ranks still are: the one that others have left, if there is one."""
    stages = list(dict.fromkeys(place["now"] for place in known.values() if place["now"]))
    left = {place["left"] for place in known.values()}
    return next((stage for stage in stages if stage in left), next(iter(stages), ""))


def own_error(raised: dict[int, dict], ranks: int) -> str:
    """rank 1 of 2 raised ValueError: no such word (line 7 of train.py), in `build`"""
    first = min(raised)
    one = raised[first]
    alike = [rank for rank, other in raised.items() if other["what"] == one["what"]]
    who = f"all {ranks} ranks" if len(alike) == ranks > 1 else f"{ranks_named(alike)} of {ranks}"
    where = f" ({one['place']})" if one["place"] else ""
    stage = one["stage"] or "its start"
    return (
        f"{who} raised {one['what']}{where}, in `{stage}`, so there is nothing to compare. "
        f"Mend the program first."
    )


def all_checks(records: Records, ranks: int, ending: Ending | None) -> list[Check]:
    """Judge the records of one program; the job's bad ending stands where it came."""
    checks: list[Check] = []
    for name, judge in JUDGES.items():
        if ending and name == ending.check:
            cause = compare_causes.name(name, ending.facts)
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
            cause = compare_causes.name(name, facts)
            checks.append(Check(name, False, seen, cause.cause, cause.remedy, cause.id, facts))
    return checks
