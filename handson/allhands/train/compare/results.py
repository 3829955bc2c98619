"""Do N ranks give the results of one? Gradients, parameters, and the evaluation's numbers.

Each function judges the records of one check: (equal, what was seen, facts for `causes`).

Two runs that make the same steps differ by rounding alone: sums of float32 numbers in another
order. The unit roundoff is u = 2^-24 = 6e-8, and a gradient is a sum of n = 10^3 to 10^4 terms
(samples times tokens), so orders differ by about sqrt(n) u, at most n u, of the sum of the terms'
sizes (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2). How much that is
here is measured each time: the run alone is made a second time with the samples of each step in the
reverse order. A difference counts as rounding up to FACTOR times what that shows, and up to a
floor: what rounding may reach where the second run happens to show little. Distances are
|a - b| / |b| with Euclidean norms over all parameters; that of parameters is taken between the
changes since the start. Mistakes lie far above: one sample of a hundred counted wrongly makes about
1e-2.
"""

import math
from collections.abc import Sequence

from allhands.train.compare.checks import (
    Check,
    Missing,
    by_rank,
    failed,
    need,
    need_alone,
    on,
    ranks_named,
)
from allhands.train.compare.records import (
    SAME,
    Arrays,
    Records,
    difference,
    distance,
    farthest,
    inner,
    norm,
)

FACTOR = 30
GRADIENT_FLOOR = 1e-5  # sqrt(10^4) u = 6e-6
PARAMETER_FLOOR = 1e-4  # Adam divides by sqrt(v): where a gradient is small, rounding weighs more
RANDOM = 0.05  # no order of summation does that
METRIC = 1e-5  # relative; sums in double precision of losses in single
RATIO = 0.05  # how near a metric's ratio to its value alone must be to N, to be called N


def gradient(records: Records, ranks: int, checks: list[Check]):
    """The gradient of one step against that of all its samples at once.

    As it comes from the exchange, and as the optimizer's hooks (clipping) leave it.
    """
    seen = need(records, "gradient", ranks)
    right = need_alone(records, "gradient")
    used, right_used = need(records, "used", ranks), need_alone(records, "used")
    failed(checks, "initial")
    rounding = distance(records.get("alone", "gradient_again"), right)
    bound = max(GRADIENT_FLOOR, FACTOR * rounding)
    own = records.get("alone", "own_gradients")
    mistakes = records.get("alone", "mistakes")
    raw, raw_alone = need(records, "raw", ranks), need_alone(records, "raw")
    pairs = enumerate(zip(raw, raw_alone, strict=True))
    foreign = [rank for rank, (one, other) in pairs if not parallel(one, other)]
    far = max(distance(one, right) for one in seen)
    far_used = max(distance(one, right_used) for one in used)
    allowed = max(bound, SAME)
    ratio = inner(seen[0], right) / (inner(right, right) or 1.0)
    straight = distance(seen[0], times(right, ratio)) <= allowed * abs(ratio) if ratio else False
    facts = {
        "distance": max(far, far_used),
        "bound": bound,
        "foreign": foreign,
        "rounding": rounding,
        "random": rounding > RANDOM,
        "between_ranks": max(distance(one, seen[0]) for one in seen) > allowed,
        "own": ranks > 1
        and all(parallel(one, other) for one, other in zip(seen, own, strict=True)),
        "ratio": ratio,
        "ratio_is_n": straight and math.isclose(ratio, ranks, rel_tol=1e-3),
        "ratio_is_1_over_n": straight and math.isclose(ratio * ranks, 1, rel_tol=1e-3),
        "hooks": far <= bound < far_used,
        "fits": [name for name, value in mistakes.items() if distance(seen[0], value) <= allowed],
    }
    sizes = [batches[0] for batches in need(records, "batches", ranks)]
    text = (
        f"a step of {' + '.join(map(str, sizes))} samples: |g| = {norm(seen[0]):.4g} on "
        f"{on(ranks)}, {norm(right):.4g} alone; they differ by {far:.2g} of it (rounding makes "
        f"{rounding:.1g}, {bound:.1g} is allowed)"
    )
    equal = max(far, far_used) <= bound and not facts["random"]
    if facts["random"]:
        text = f"alone, two runs of one step differ by {rounding:.2g} of the gradient"
    elif facts["hooks"]:
        text += f"; after the optimizer's hooks they differ by {far_used:.2g}"
    elif not equal and foreign:
        text += (
            f"; before the exchange, the gradient on {ranks_named(foreign)} is not that of the "
            f"same samples alone"
        )
    elif not equal and len(right) > 1:
        text += f", most in {farthest(seen[0], right)}"
    return equal, text, facts


def parallel(one: Arrays, other: Arrays) -> bool:
    """Is one a multiple of the other, but for rounding? Batches of unequal weight differ so."""
    return inner(one, other) >= (1 - GRADIENT_FLOOR) * norm(one) * norm(other)


def times(values: Arrays, factor: float) -> Arrays:
    return {name: None if one is None else factor * one for name, one in values.items()}


def parameters(records: Records, ranks: int, checks: list[Check]):
    """Parameters after all steps, as changes since the first."""
    last = need(records, "last", ranks)
    right = need_alone(records, "last")
    failed(checks, "initial", "gradient")
    start = need_alone(records, "start")
    changes = [difference(one, start) for one in last]
    change = difference(right, start)
    rounding = distance(difference(records.get("alone", "last_again"), start), change)
    bound = max(PARAMETER_FLOOR, FACTOR * rounding)
    far = max(distance(one, change) for one in changes)
    between = max(distance(one, changes[0]) for one in changes)
    ratio = inner(changes[0], change) / (inner(change, change) or 1.0)
    cosine = ratio * norm(change) / (norm(changes[0]) or 1.0)
    facts = {
        "distance": far,
        "bound": bound,
        "rounding": rounding,
        "between_ranks": between > bound,
        "ratio": ratio,
        "parallel": cosine > 0.98 and abs(ratio - 1) > 0.02,
    }
    steps = len(need(records, "batches", ranks)[0])
    text = (
        f"after {steps} steps the parameters moved by {norm(change):.4g}; the ranks differ from "
        f"the run alone by {far:.2g} of it (rounding makes {rounding:.1g}, {bound:.1g} is allowed)"
    )
    if between > bound:
        text += f", and from each other by {between:.2g}"
    elif facts["parallel"]:
        text += f": they moved {ratio:.3g} times as far"
    return far <= bound, text, facts


def counts(records: Records, ranks: int, checks: list[Check]):
    """What the evaluation counted: every held-out sentence and token once."""
    return numbers(records, ranks, counts_only=True)


def metrics(records: Records, ranks: int, checks: list[Check]):
    """What the evaluation computed, with the same parameters."""
    return numbers(records, ranks, counts_only=False)


def numbers(records: Records, ranks: int, *, counts_only: bool):
    said = need(records, "evaluated", ranks)
    alone, again = need_alone(records, "evaluated"), need_alone(records, "evaluated_again")
    names = [name for name in alone if name.startswith("n_") == counts_only]
    if not names:
        raise Missing("`evaluate` gives no " + ("count (n_...)" if counts_only else "metric"))
    speaking = {rank: one for rank, one in enumerate(said) if one} or {0: {}}
    silent = [rank for rank in range(ranks) if rank not in speaking]
    table = {
        name: {rank: float(one.get(name, math.nan)) for rank, one in speaking.items()}
        for name in names
    }
    right = {name: float(alone[name]) for name in names}
    first = {name: next(iter(table[name].values())) for name in names}
    wrong = [n for n in names if not all(near(v, right[n]) for v in table[n].values())]
    ratios = [first[name] / right[name] for name in names if right[name]]
    facts = {
        "wrong": wrong,
        "first_right": names[0] not in wrong,
        "random": any(not near(float(again.get(name, math.nan)), right[name]) for name in names),
        "short_of": None,
        "only_rank_0": list(speaking) == [0] and ranks > 1,
        "between_ranks": any(not near(v, first[n]) for n in names for v in table[n].values()),
        "ratio_is_n": close(ratios, ranks, METRIC if counts_only else RATIO),
        "ratio_is_1_over_n": close(ratios, 1 / ranks, METRIC),
        "more": all(first[name] >= right[name] for name in names),
        "only_bleu": all("bleu" in name.lower() for name in wrong),
    }
    n_held_out = need(records, "built", ranks)[0]["n_held_out"]
    if counts_only and not wrong and n_held_out not in (None, right[names[0]]):
        facts["short_of"] = n_held_out
        return False, f"{names[0]} {right[names[0]]:.8g}, of {n_held_out} held out", facts
    if facts["random"]:
        moved = [name for name in names if not near(float(again.get(name, math.nan)), right[name])]
        twice = [f"{name} {right[name]:.8g} and {float(again[name]):.8g}" for name in moved]
        return False, f"alone, two evaluations of one model give {'; '.join(twice)}", facts
    parts = [
        f"{name}: {by_rank({r: f'{v:.8g}' for r, v in table[name].items()}, f'{right[name]:.8g}')}"
        if name in wrong
        else f"{name} {right[name]:.6g}"
        for name in wrong or names
    ]
    if silent:
        parts.append(f"{ranks_named(silent)} said nothing")
    zero = [name for name in names if right[name] == 0]
    if zero and not counts_only and not wrong:
        parts.append(f"{', '.join(zero)} of 0 shows little: give more --steps")
    return not wrong, "; ".join(parts), facts


def near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=METRIC, abs_tol=1e-9)


def close(ratios: Sequence[float], wanted: float, tolerance: float) -> bool:
    """Are the ratios all this one, which is not 1?"""
    return (
        bool(ratios)
        and wanted != 1
        and all(abs(ratio / wanted - 1) <= tolerance for ratio in ratios)
    )
