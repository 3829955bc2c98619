"""How did a job end that did not end well: a hang, an error of the program, of MPI, a lost rank?

The ranks' records say in which stage each of them was, and where it stood.
"""

from allhands import launch
from allhands.train.compare import causes
from allhands.train.compare.checks import Ending, ranks_named
from allhands.train.compare.records import Records


def bad_ending(
    records: Records,
    ranks: int,
    places: list[dict | None],
    end: launch.RanksFailed,
    limit_s: float,
) -> Ending:
    """Say how the job ended.

    ValueError if nothing can be compared: the program raised an error of its own, or the job ended
    before all ranks had built it.
    """
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
    there = f"in `{stage}`" if stage else "at their start"
    hang = (records.folder / "hang").exists()
    if not hang and not isinstance(end, launch.TimeUp):
        kind = "mpi" if "aborted the job" in str(end) else "failed"
        ending = Ending(kind, stage, f"in `{stage}`: {end}" if stage else str(end))
        return ending if kind == "mpi" else at_work(ending, records, ranks)
    inside = [rank for rank, place in known.items() if place["now"] == stage]
    left = [rank for rank in known if rank not in inside]
    waits = hang or (bool(known) and all(place["waits"] for place in known.values()))
    if left and inside:
        verb = {(True, 1): "waits", (True, 2): "wait", (False, 1): "is", (False, 2): "are"}
        still = f"still {verb[waits, min(len(inside), 2)]} in it"
        seen = f"{ranks_named(left)} left `{stage}`; {ranks_named(inside)} {still}"
    else:
        seen = f"all ranks {'wait' if waits else 'are'} {there}"
    after = "" if hang else f" after {limit_s:g} s"
    spots = [(rank, known[rank]["place"]) for rank in inside if known[rank]["place"]]
    where = "; ".join(f"{ranks_named([rank])} at {place}" for rank, place in spots)
    seen += after + (f" ({where})" if where else "")
    if waits:
        return Ending("hang", stage, seen, tuple(inside))
    return at_work(Ending("time", stage, seen, tuple(inside)), records, ranks)


def at_work(ending: Ending, records: Records, ranks: int) -> Ending:
    """The ending, if all ranks had built the program by then; else ValueError."""
    if None not in records.of_ranks("built", ranks):
        return ending
    cause = causes.name("world", ending.facts)
    raise ValueError(
        f"Nothing was compared, since the program was not built on all ranks: {ending.sentence}. "
        f"{cause.remedy}"
    )


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
