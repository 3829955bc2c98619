"""What does each way of sharing the work cost? Small models behind the opening talk's figures.

Nothing here was measured: every number follows from the arguments. Times are in seconds, or in
units of one step; a rank is an index from 0; a curvature h belongs to the loss h x² / 2.
"""

from collections.abc import Sequence
from statistics import NormalDist

from allhands.trace.events import Event


def pipeline(n_ranks: int, n_micro: int, forward_s: float, backward_s: float) -> list[Event]:
    """One step of a model cut into n_ranks stages of equal size, its batch into n_micro pieces.

    A rank computes one piece at a time, the forward passes of all pieces first; a piece's forward
    pass goes up the ranks, its backward pass down. `forward_s` and `backward_s` are the times of a
    stage for the whole batch. With one piece, one rank works at a time. Source: Huang et al. 2019
    (GPipe).
    """
    events: list[Event] = []
    free_s = [0.0] * n_ranks
    for what, total_s, ranks in (
        ("forward", forward_s, range(n_ranks)),
        ("backward", backward_s, range(n_ranks - 1, -1, -1)),
    ):
        for micro in range(n_micro) if what == "forward" else range(n_micro - 1, -1, -1):
            before_s = free_s[ranks[0]]
            for rank in ranks:
                start_s = max(before_s, free_s[rank])
                before_s = free_s[rank] = start_s + total_s / n_micro
                events.append(Event(start_s, before_s, rank, what, str(micro + 1)))
    return events


def synchronous(compute_s: Sequence[Sequence[float]], exchange_s: float) -> list[Event]:
    """Steps in which all ranks wait for the slowest, and then exchange: compute_s[rank][step]."""
    events, now_s = [], 0.0
    for step in range(len(compute_s[0])):
        slowest_s = now_s + max(times[step] for times in compute_s)
        for rank, times in enumerate(compute_s):
            done_s = now_s + times[step]
            events.append(Event(now_s, done_s, rank, "forward", str(step)))
            if done_s < slowest_s:
                events.append(Event(done_s, slowest_s, rank, "wait"))
            events.append(Event(slowest_s, slowest_s + exchange_s, rank, "communicate"))
        now_s = slowest_s + exchange_s
    return events


def asynchronous(compute_s: Sequence[Sequence[float]], exchange_s: float) -> list[Event]:
    """Steps in which nobody waits for the others' work: compute_s[rank][step].

    A rank computes on the parameters that it has, then exchanges with the server, which serves one
    rank at a time: the gradient goes there, newer parameters come back. The name of each
    `communicate` is its staleness: how many updates of others the server took in since the rank had
    fetched the parameters of this gradient.
    """
    n_ranks = len(compute_s)
    step, version, fetched = [0] * n_ranks, 0, [0] * n_ranks
    done_s = [times[0] for times in compute_s]
    events = [Event(0.0, done_s[rank], rank, "forward", "0") for rank in range(n_ranks)]
    server_free_s = 0.0
    while any(done < float("inf") for done in done_s):
        rank = min(range(n_ranks), key=lambda each: done_s[each])
        start_s = max(done_s[rank], server_free_s)
        if done_s[rank] < start_s:
            events.append(Event(done_s[rank], start_s, rank, "wait"))
        server_free_s = start_s + exchange_s
        stale = str(version - fetched[rank])
        events.append(Event(start_s, server_free_s, rank, "communicate", stale))
        version += 1
        fetched[rank] = version
        step[rank] += 1
        done_s[rank] = float("inf")
        if step[rank] < len(compute_s[rank]):
            done_s[rank] = server_free_s + compute_s[rank][step[rank]]
            named = str(step[rank])
            events.append(Event(server_free_s, done_s[rank], rank, "forward", named))
    return events


def slowest_of(n_ranks: int, spread: float, points: int = 2000) -> float:
    """The expected time of the slowest of n ranks, whose times are normal with mean 1.

    `spread` is the standard deviation. By the quantiles of the maximum: of n independent times, it
    lies below q(u) with probability uⁿ.
    """
    quantile = NormalDist(1.0, spread).inv_cdf
    return sum(quantile(((k + 0.5) / points) ** (1 / n_ranks)) for k in range(points)) / points


def slowest_with_pauses(n_ranks: int, share: float, pause: float) -> float:
    """The expected time of the slowest of n ranks: 1, or 1 + pause in a `share` of the steps."""
    return 1.0 + pause * (1.0 - (1.0 - share) ** n_ranks)


def server_s(n_ranks: int, n_bytes: float, bytes_per_s: float, startup_s: float) -> float:
    """Seconds of one exchange through one server: N gradients go in, then N models come out."""
    return 2 * n_ranks * (startup_s + n_bytes / bytes_per_s)


def ring_s(n_ranks: int, n_bytes: float, bytes_per_s: float, startup_s: float) -> float:
    """Seconds of a ring all-reduce: 2(N-1) steps, each with an N-th of the bytes."""
    return 2 * (n_ranks - 1) * (startup_s + n_bytes / n_ranks / bytes_per_s)


def delayed_descent(rate: float, delay: int, steps: int) -> list[float]:
    """x[t+1] = x[t] - rate * x[t - delay] from x = 1: descent on x²/2 with old gradients.

    It converges if 0 < rate < 2 sin(π / (2 (2 delay + 1))) and not otherwise.
    """
    xs = [1.0] * (delay + 1)
    for _ in range(steps):
        xs.append(xs[-1] - rate * xs[-1 - delay])
    return xs[delay:]


def expected_loss(
    schedule: Sequence[tuple[float, float, int]], curvatures: Sequence[float], noise: float = 1.0
) -> list[float]:
    """The expected loss before and after each update of SGD on a sum of h x²/2, from x = 1.

    `schedule` holds (rate, batch, updates). A gradient has the variance `noise` / batch, so that
    E[x²] becomes (1 - rate h)² E[x²] + rate² noise / batch in one update.
    """
    squares = [1.0] * len(curvatures)
    losses = [sum(h * s / 2 for h, s in zip(curvatures, squares, strict=True))]
    for rate, batch, updates in schedule:
        for _ in range(updates):
            squares = [
                (1 - rate * h) ** 2 * s + rate**2 * noise / batch
                for h, s in zip(curvatures, squares, strict=True)
            ]
            losses.append(sum(h * s / 2 for h, s in zip(curvatures, squares, strict=True)))
    return losses
