"""What should one all-reduce cost on N workers, by algorithm, and how does a measured cost scale?

Model: a message of s bytes between two workers takes latency_s + s_per_byte * s; adding two vectors
takes reduce_s_per_byte a byte; a worker sends and receives one message at a time, both at once.
With alpha, beta, gamma for the three, all costs below are affine in s. Sources: Thakur,
Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19
(2005), for recursive doubling, halving-doubling and ring; Sanders, Speck and Träff, Parallel
Computing 35 (2009), for two trees. Lower bounds (Chan et al., Concurrency and Computation 19,
2007): no all-reduce has fewer than log2 N start-ups, or less than 2 beta (N-1)/N + gamma (N-1)/N a
byte.

One worker has nothing to reduce: every cost is 0 then.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from allhands.mgwfbp.cost import AffineCost


@dataclass(frozen=True)
class Wire:
    """One link between two workers: alpha, beta and gamma of the model."""

    latency_s: float
    s_per_byte: float
    reduce_s_per_byte: float = 0.0


Algorithm = Callable[[int, Wire], AffineCost]


def _check_workers(n_workers: int) -> None:
    if n_workers != int(n_workers) or n_workers < 1:
        raise ValueError(f"Expected a whole number of workers, 1 or more; saw {n_workers}.")


def ring(n_workers: int, wire: Wire) -> AffineCost:
    """Reduce-scatter and all-gather around a ring: 2(N-1) steps of s/N bytes, for any N."""
    _check_workers(n_workers)
    share = (n_workers - 1) / n_workers
    per_byte = 2 * share * wire.s_per_byte + share * wire.reduce_s_per_byte
    return AffineCost(2 * (n_workers - 1) * wire.latency_s, per_byte)


def recursive_doubling(n_workers: int, wire: Wire) -> AffineCost:
    """All bytes exchanged with a partner at distance 1, 2, 4, ...: log2 N steps.

    If N is not a power of two, see `_fold`.
    """
    _check_workers(n_workers)
    steps = int(n_workers).bit_length() - 1
    per_byte = steps * (wire.s_per_byte + wire.reduce_s_per_byte)
    return _fold(n_workers, wire, AffineCost(steps * wire.latency_s, per_byte))


def halving_doubling(n_workers: int, wire: Wire) -> AffineCost:
    """Rabenseifner's all-reduce: recursive halving (reduce-scatter), then doubling (all-gather).

    2 log2 N steps, and no more bytes than a ring. If N is not a power of two, see `_fold`.
    """
    _check_workers(n_workers)
    steps = int(n_workers).bit_length() - 1
    share = 1 - 2.0**-steps
    per_byte = 2 * share * wire.s_per_byte + share * wire.reduce_s_per_byte
    return _fold(n_workers, wire, AffineCost(2 * steps * wire.latency_s, per_byte))


def _fold(n_workers: int, wire: Wire, core: AffineCost) -> AffineCost:
    """Add what MPICH does if N is not a power of two; `core` is for the next lower power.

    Each worker too many first gives its whole vector to a neighbour, who adds it, and gets the
    result at the end: two more start-ups, 2 beta + gamma more a byte.
    """
    if int(n_workers) & (int(n_workers) - 1) == 0:
        return core
    return AffineCost(
        core.startup_s + 2 * wire.latency_s,
        core.s_per_byte + 2 * wire.s_per_byte + wire.reduce_s_per_byte,
    )


def tree(n_workers: int, wire: Wire) -> AffineCost:
    """Reduce to one root, then broadcast, on one binomial tree, not pipelined; any N."""
    _check_workers(n_workers)
    depth = math.ceil(math.log2(n_workers))
    per_byte = (2 * wire.s_per_byte + wire.reduce_s_per_byte) * depth
    return AffineCost(2 * wire.latency_s * depth, per_byte)


def double_binary_tree(n_workers: int, wire: Wire) -> AffineCost:
    """Two pipelined trees, each with half of the bytes, as NCCL uses them from 2.4 on; any N.

    An estimate for long messages: about 2 log2 N start-ups (rounded up), and each link carries
    about 2s bytes, whatever N is. The start-ups of the pipeline's pieces are left out.
    """
    _check_workers(n_workers)
    if n_workers == 1:
        return AffineCost(0.0, 0.0)
    depth = math.ceil(math.log2(n_workers))
    return AffineCost(2 * wire.latency_s * depth, 2 * wire.s_per_byte + wire.reduce_s_per_byte)


def hierarchical(
    n_nodes: int, n_per_node: int, inside: Wire, between: Wire, algorithm: Algorithm = ring
) -> AffineCost:
    """Reduce-scatter inside each node, all-reduce between nodes, all-gather inside each node.

    Inside, a ring of `n_per_node` workers over `inside`. Between nodes, the workers with the same
    place in their nodes all-reduce their s / n_per_node bytes by `algorithm` over `between`, all
    places at once: each worker is taken to have its own port. If the workers of a node share one
    port, give `between` with s_per_byte multiplied by `n_per_node`.
    """
    _check_workers(n_per_node)
    in_node, out = ring(n_per_node, inside), algorithm(n_nodes, between)
    return AffineCost(
        in_node.startup_s + out.startup_s, in_node.s_per_byte + out.s_per_byte / n_per_node
    )


ALGORITHMS: dict[str, Algorithm] = {
    "ring": ring,
    "recursive doubling": recursive_doubling,
    "halving-doubling": halving_doubling,
    "tree": tree,
    "double binary tree": double_binary_tree,
}


def rescale(
    cost: AffineCost, *, n_measured: int, n_workers: int, algorithm: str = "ring"
) -> AffineCost:
    """Say what a cost measured on `n_measured` workers becomes on `n_workers`.

    Start-up and time per byte grow as theory says for `algorithm`, with the time of adding left
    out. It is an extrapolation: real start-ups grow by congestion and stragglers too. Raises
    ValueError for an unknown algorithm, or for fewer than 2 measured workers.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"There is no all-reduce algorithm {algorithm!r} here. Choose from {list(ALGORITHMS)}."
        )
    if n_measured < 2:
        raise ValueError(
            f"A cost measured on {n_measured} worker says nothing about a link: measure at least 2."
        )
    unit = Wire(latency_s=1.0, s_per_byte=1.0)
    was, will_be = ALGORITHMS[algorithm](n_measured, unit), ALGORITHMS[algorithm](n_workers, unit)
    return AffineCost(
        cost.startup_s * will_be.startup_s / was.startup_s,
        cost.s_per_byte * will_be.s_per_byte / was.s_per_byte,
    )
