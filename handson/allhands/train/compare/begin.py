"""Do N ranks begin like one? Their world, settings, first parameters, and samples.

Each function judges the records of one check: (equal, what was seen, facts for `causes`).
"""

from collections.abc import Sequence

import numpy as np

from allhands.train.compare.checks import (
    Check,
    by_rank,
    counted,
    need,
    need_alone,
    on,
    ranks_named,
    short,
)
from allhands.train.compare.records import SAME, Records, distance, fit_together

LONG = 40  # entries or letters: longer values are told by their sizes


def world(records: Records, ranks: int, checks: list[Check]):
    sizes = need(records, "world", ranks)
    return sizes == [ranks] * ranks, f"{on(ranks)} in one world", {"sizes": sizes}


def same(records: Records, ranks: int, checks: list[Check]):
    """Settings and vocabularies: equal on all ranks, and alone."""
    built = need(records, "built", ranks)
    alone = need_alone(records, "built")
    names = list(dict.fromkeys(name for one in [*built, alone] for name in one["same"]))
    values = {name: [one["same"].get(name) for one in [*built, alone]] for name in names}
    differs = [name for name in names if not all_same(values[name])]
    shapes = not fit_together([one["shapes"] for one in [*built, alone]])
    between = [name for name in differs if not all_same(values[name][:ranks])]
    facts = {
        "between_ranks": bool(between) or not fit_together([one["shapes"] for one in built]),
        "vocabulary": any("vocab" in name.lower() for name in between),
        "shapes": shapes,
        "rate": any(is_rate(name) for name in differs),
        "rate_too_small": any(is_rate(n) and values[n][0] < values[n][-1] for n in differs),
        "differs": differs,
        "speakers": wrong_speakers([one["speaks"] for one in built]),
    }
    if facts["speakers"]:
        return False, facts["speakers"], facts
    if not differs and not shapes:
        own = [name for name in names if name not in alone["settings"]]
        seen = f"{', '.join(own)}, {len(alone['settings'])} settings of the optimizer"
        return True, f"{seen}: the same on {on(ranks)} and alone", facts
    seen = [f"{name}: {told(values[name])}" for name in differs]
    if shapes:
        seen.append(f"parameters of different sizes: {different_shapes(built, alone)}")
    return False, "; ".join(seen), facts


def wrong_speakers(speak: Sequence[bool | None]) -> str:
    """What is wrong with who prints and writes files; nothing if rank 0 does, or nobody told."""
    if None in speak or list(speak) == [True] + [False] * (len(speak) - 1):
        return ""
    speaking = [rank for rank, one in enumerate(speak) if one]
    who = ranks_named(speaking) if speaking else "no rank"
    return f"by `speaks`, {who} of {len(speak)} would print and write files; rank 0 alone should"


def is_rate(name: str) -> bool:
    return name.lower() in ("lr", "alpha", "rate", "factor") or "learning" in name.lower()


def all_same(values: Sequence[object]) -> bool:
    return all(
        np.array_equal(value, values[0]) if isinstance(value, np.ndarray) else value == values[0]
        for value in values
    )


def told(values: Sequence[object]) -> str:
    """rank 0 has 12 entries, rank 1 has 11, alone 12; or the values themselves."""
    if all(isinstance(value, list | tuple | dict | str) for value in values):
        sizes = [len(value) for value in values]
        if len(set(sizes)) > 1 or max(sizes) > LONG:
            words = [f"{size} entries" for size in sizes]
            if len(set(sizes)) == 1:
                words = [
                    f"{size} entries from {start(value)}"
                    for size, value in zip(sizes, values, strict=True)
                ]
            return by_rank(words[:-1], words[-1])
    words = [short(value) for value in values]
    return by_rank(words[:-1], words[-1])


def start(value: object) -> str:
    return short(list(value)[:3]) if not isinstance(value, str) else repr(value[:20])


def different_shapes(built: list[dict], alone: dict) -> str:
    every = [one["shapes"] for one in [*built, alone]]
    for name in every[0]:
        shapes = [shapes.get(name) for shapes in every]
        if len({shape for shape in shapes if shape is not None}) > 1:
            return f"{name} has {by_rank([str(shape) for shape in shapes[:-1]], str(shapes[-1]))}"
    return "the parameters have different names"


def initial(records: Records, ranks: int, checks: list[Check]):
    """Parameters before the first real step, and what the optimizer has kept until then."""
    starts = need(records, "start", ranks)
    built = need(records, "built", ranks)
    broadcast = all(records.of_ranks("only_broadcast", ranks))
    alone = need_alone(records, "start")
    lazy = sorted(name for name, value in built[0]["initial"].items() if value is None)
    before = max(distance(one["initial"], built[0]["initial"]) for one in built)
    begun = records.of_ranks("begun", ranks)  # what the first real step found
    was_equal = max(distance(one, starts[0]) for one in starts) <= SAME
    if was_equal and None not in begun:
        starts = begun
    between = max(distance(one, starts[0]) for one in starts)
    to_alone = distance(starts[0], alone)
    states = [one["state"] for one in built]
    state = not all(one.keys() == states[0].keys() for one in states) or any(
        distance(one, states[0]) > SAME for one in states
    )
    facts = {
        "lazy": lazy,
        "broadcast": broadcast,
        "between_ranks": between > SAME,
        "changed": was_equal or all(one["handed_over"] for one in built),
        "distance": max(between, to_alone),
        "state_differs": state,
    }
    parts = []
    if before > SAME and ranks > 1:
        end = "after the first update they are equal" if between <= SAME else "they still do"
        parts.append(f"the ranks' parameters differ by {before:.2g} when they are built; {end}")
    if lazy:
        more = ", ..." if len(lazy) > 1 else ""
        parts.append(
            f"without values when built: {counted(len(lazy), 'parameter')} ({lazy[0]}{more})"
        )
    if between > SAME:
        parts.append(f"at the first step the ranks differ by {between:.2g}")
    elif to_alone > SAME:
        parts.append(f"the ranks agree, and differ from the run alone by {to_alone:.2g}")
    else:
        parts.append(f"{len(alone)} parameter arrays are equal at the first step")
    if state:
        parts.append("what the optimizer keeps of its updates differs between ranks")
    return max(between, to_alone) <= SAME and not state, "; ".join(parts), facts


def samples(records: Records, ranks: int, checks: list[Check]):
    """Every sample exactly once an epoch over all ranks, shuffled, in as many steps on each."""
    epochs = need(records, "epochs", ranks)
    n = need(records, "built", ranks)[0]["same"]["n_samples"]
    facts = sample_facts(epochs, n)
    steps = [len(rank[0]) for rank in epochs]
    sizes = [sum(map(len, rank[0])) for rank in epochs]
    shares = by_rank([f"{size}" for size in sizes])
    parts = [f"{counted(n, 'sample')}, in epochs 0 and 1; an epoch has {shares}"]
    if facts["n_missing"]:
        parts.append(f"never seen: {counted(facts['n_missing'], 'sample')}")
    if facts["n_repeated"]:
        parts.append(f"more than once: {counted(facts['n_repeated'], 'sample')}")
    if facts["n_unknown"]:
        parts.append(f"no sample of the {n}: {counted(facts['n_unknown'], 'number')}")
    if not (facts["n_missing"] or facts["n_repeated"] or facts["n_unknown"]):
        parts.append("each comes once")
    word = [f"{count} steps" for count in steps]
    parts.append(f"{by_rank(word)}" if facts["unequal_steps"] else f"{steps[0]} steps")
    if facts["in_order"]:
        parts.append("they come in the order of the file")
    elif facts["contiguous"]:
        parts.append("each rank has one stretch of the file")
    if facts["same_order"]:
        parts.append("two epochs have the same order")
    bad = ("n_missing", "n_repeated", "n_unknown", "unequal_steps", "in_order", "contiguous")
    return not any(facts[key] for key in (*bad, "same_order")), "; ".join(parts), facts


def sample_facts(epochs: list[list[list[np.ndarray]]], n: int) -> dict[str, object]:
    """epochs: [rank][epoch][step] -> sample numbers. The facts of the worse of two epochs."""
    rows = [[np.concatenate([*epoch, []]).astype(int) for epoch in rank] for rank in epochs]
    counts = []
    for epoch in (0, 1):
        numbers = np.concatenate([rank[epoch] for rank in rows])
        known = numbers[(numbers >= 0) & (numbers < n)]
        counts.append((np.bincount(known, minlength=n), len(numbers) - len(known)))
    shares = [np.unique(rank[0]) for rank in rows]
    stretch = [len(share) > 3 and share[-1] - share[0] == len(share) - 1 for share in shares]
    return {
        "ranks": len(epochs),
        "n_missing": max(int((count == 0).sum()) for count, _ in counts),
        "n_repeated": max(int((count > 1).sum()) for count, _ in counts),
        "n_unknown": max(unknown for _, unknown in counts),
        "all_on_all": all(len(share) == n for share in shares),
        "same_on_all": all(np.array_equal(share, shares[0]) for share in shares),
        "unequal_steps": any(len({len(rank[epoch]) for rank in epochs}) > 1 for epoch in (0, 1)),
        "in_order": any(len(rank[0]) > 3 and bool((np.diff(rank[0]) > 0).all()) for rank in rows),
        "contiguous": len(epochs) > 1 and all(stretch) and any(len(share) < n for share in shares),
        "same_order": all(np.array_equal(*rank) for rank in rows) and n > 3,
    }
