"""Which strategy is best for these gradients on this link, and what is it worth?

`compare` puts all strategies side by side; the comparison prints itself, recommends in words, and
gives plain data for JSON. Conventions: seconds inside, milliseconds in text.
"""

from dataclasses import dataclass

from allhands.mgwfbp import optimal, rules
from allhands.mgwfbp.cost import AffineCost, Cost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket

WORTH = 0.02  # a gain below this share of the iteration is not worth a change
MEANING = {
    "WFBP": "one all-reduce per gradient",
    "SyncEASGD": "one for all, as ChainerMN",
    "DDP": "buckets of 1 MiB, then 25 MiB",
    "Horovod": "what is ready at each tick of 1 ms, up to 64 MiB",
    "send-when-ready": "all that is ready whenever the link is free",
    "MG-WFBP": "as published",
    "optimum": "exact",
    "optimum-fewest": "exact, with the fewest messages",
}


@dataclass(frozen=True)
class Strategy:
    """A strategy's plan and when it finishes. Horovod's groups are judged without its ticks."""

    name: str
    finish_s: float
    plan: Plan

    def as_dict(self) -> dict:
        """Return {"name", "finish_s", "groups": [[first, last], ...]}, in order of arrival."""
        groups = [list(group) for group in self.plan.groups]
        return {"name": self.name, "finish_s": self.finish_s, "groups": groups}


@dataclass(frozen=True)
class Comparison:
    """All strategies on the same gradients and cost, in the order of `MEANING`."""

    gradients: Gradients
    cost: Cost
    strategies: tuple[Strategy, ...]

    def __getitem__(self, name: str) -> Strategy:
        for strategy in self.strategies:
            if strategy.name == name:
                return strategy
        raise KeyError(
            f"There is no strategy {name!r}; there are {[one.name for one in self.strategies]}."
        )

    @property
    def best(self) -> Strategy:
        """The one to use: the optimum with the fewest messages, where it is known."""
        return self.strategies[-1]

    def as_dicts(self) -> list[dict]:
        return [strategy.as_dict() for strategy in self.strategies]

    def __str__(self) -> str:
        best_s = self.best.finish_s
        lines = [f"{'strategy':16} {'finish':>11} {'of best':>8} {'messages':>9}  what it sends"]
        for one in self.strategies:
            ratio = one.finish_s / best_s if best_s > 0 else 1.0
            lines.append(
                f"{one.name:16} {1e3 * one.finish_s:8.2f} ms {ratio:7.3f}x "
                f"{one.plan.n_groups:9}  {MEANING[one.name]}"
            )
        return "\n".join(lines)


def compare(gradients: Gradients, cost: Cost) -> Comparison:
    """Plan with every strategy and say when each finishes.

    For a cost that is not affine, `optimum` is the O(L^2) form, and `optimum-fewest` is left out.
    """
    n = len(gradients)
    plans = {
        "WFBP": one_per_gradient(n),
        "SyncEASGD": single_bucket(n),
        "DDP": rules.by_size(gradients),
        "Horovod": rules.horovod(gradients, cost).plan,
        "send-when-ready": rules.send_when_ready(gradients, cost),
        "MG-WFBP": rules.mg_wfbp(gradients, cost),
    }
    if isinstance(cost, AffineCost):
        plans["optimum"] = optimal.optimum(gradients, cost)
        plans["optimum-fewest"] = optimal.fewest_messages(gradients, cost)
    else:
        plans["optimum"] = optimal.optimum_any_cost(gradients, cost)
    return Comparison(
        gradients,
        cost,
        tuple(
            Strategy(name, finish_s(gradients, plan, cost), plan) for name, plan in plans.items()
        ),
    )


def recommendation(comparison: Comparison) -> str:
    """Say in words what to do: the ratio first, then the plan and its gain, then what is left."""
    parts = [_ratio(comparison), _plan(comparison), _published(comparison), _left(comparison)]
    return "\n".join(part for part in parts if part)


def _ratio(comparison: Comparison) -> str:
    gradients = comparison.gradients
    link_s = comparison.cost(gradients.total_bytes)
    backward_s = gradients.compute_s - gradients.forward_s
    ratio = f", {link_s / backward_s:.2f} times the backward pass" if backward_s > 0 else ""
    return (
        f"All {gradients.total_bytes / 1e6:.1f} MB need the link for {_ms(link_s)} at least"
        f"{ratio} ({_ms(backward_s)})."
    )


def _plan(comparison: Comparison) -> str:
    best, default = comparison.best, comparison["DDP"]
    if _gain(default, best) < WORTH:
        advice = (
            f"Keep PyTorch's default buckets ({_ms(default.finish_s)}): the best plan wins "
            f"{_gain(default, best):.1%} over them."
        )
    else:
        advice = (
            f"Use {best.name}: {_messages(best)}, {_ms(best.finish_s)} an iteration instead of "
            f"{_ms(default.finish_s)} with PyTorch's default buckets ({_times(default, best)})."
        )
    others = ", ".join(
        f"{_times(comparison[name], best)} over {words}"
        for name, words in (("SyncEASGD", "a single bucket"), ("WFBP", "one per gradient"))
    )
    return f"{advice} The best plan is {others}."


def _published(comparison: Comparison) -> str:
    published, best = comparison["MG-WFBP"], comparison.best
    if _gain(published, best) < WORTH:
        return ""
    return (
        f"MG-WFBP's published rule is not enough here: with {_messages(published)} it takes "
        f"{_ms(published.finish_s)}, {_times(published, best)} the optimum."
    )


def _left(comparison: Comparison) -> str:
    gradients, cost, best = comparison.gradients, comparison.cost, comparison.best
    left_s = best.finish_s - gradients.compute_s
    if left_s < WORTH * best.finish_s:
        return (
            f"Only {_ms(left_s)} of communication is left outside the backward pass: a faster link "
            "cannot gain more than that."
        )
    half = compare(gradients, cost.compressed(0.5)).best
    return (
        f"{_ms(left_s)} of communication ({left_s / best.finish_s:.0%} of the iteration) stay "
        f"outside the backward pass, and no plan removes them. Next, still in software: 16-bit "
        f"gradients would take {_ms(half.finish_s)} ({_times(best, half)}). Only then think of a "
        f"faster link: it can gain {best.finish_s / gradients.compute_s:.2f} times at most."
        if gradients.compute_s > 0
        else f"All {_ms(left_s)} are communication: there is no computing to hide it under."
    )


def _gain(slower: Strategy, faster: Strategy) -> float:
    """The share of the slower one's time that the faster one saves."""
    return 1 - faster.finish_s / slower.finish_s if slower.finish_s > 0 else 0.0


def _times(slower: Strategy, faster: Strategy) -> str:
    return f"{slower.finish_s / faster.finish_s:.2f} times" if faster.finish_s > 0 else "1.00 times"


def _messages(strategy: Strategy) -> str:
    n = strategy.plan.n_groups
    return f"{n} all-reduce{'s' if n != 1 else ''}"


def _ms(time_s: float) -> str:
    return f"{1e3 * time_s:.1f} ms"
