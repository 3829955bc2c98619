"""The checks of lab 2's eight edits; lab2_dataparallel.py has the others.

Ranks that are not real are those of two nodes, so that a rank's number and its number on its node
differ. The participant's program as a whole is judged by the comparison of N ranks with one.
"""

import contextlib
import inspect
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from allhands import launch
from allhands.grade.check import Marker, likely, show
from allhands.grade.checks import lab2_dataparallel_ranks as programs
from allhands.train import eight_edits
from allhands.train.compare import compare
from allhands.train.on_ranks import on_ranks

HANG_S = (6.0, 40.0)  # the second is for a machine that is busy with other things
ON_A_NODE = 2
INTRA = "`intra_rank` counts within a node; the ranks of all nodes are `comm.rank`"


def ranks_of(size: int) -> list[SimpleNamespace]:
    """What an answer may ask of a communicator, for each rank of nodes with two ranks each."""
    nodes = [list(range(size))[at : at + ON_A_NODE] for at in range(0, size, ON_A_NODE)]
    return [
        SimpleNamespace(
            rank=rank,
            size=size,
            intra_rank=node.index(rank),
            intra_size=len(node),
            inter_rank=number,
            inter_size=len(nodes),
        )
        for number, node in enumerate(nodes)
        for rank in node
    ]


def devices(mark: Marker, communicator: Callable, device_of: Callable) -> None:
    asked, said = {}, {}
    for n_gpus in (0, ON_A_NODE):
        with machine_with(n_gpus) as made:
            mark.run(communicator)
            asked[n_gpus] = list(made)
            said[n_gpus] = [mark.run(device_of, comm) for comm in ranks_of(2 * ON_A_NODE)]
    mark.require(
        asked == {0: ["naive"], ON_A_NODE: ["pure_nccl"]},
        1,
        "one communicator of ChainerMN: naive without a GPU, pure_nccl with GPUs",
        f"without {show(asked[0])}, with {show(asked[ON_A_NODE])}",
        likely(
            (not any(asked.values()), "return chainermn.create_communicator(name)"),
            (asked[0] == asked[ON_A_NODE], "ask gpu_is_usable()"),
            otherwise="pure_nccl speaks between GPUs, naive between arrays of NumPy",
        ),
    )
    cpu, gpus = said[0], said[ON_A_NODE]
    mark.require(
        cpu == ["@numpy"] * len(cpu) and gpus == ["@cupy:0", "@cupy:1"] * 2,
        1,
        "on two nodes of two GPUs @cupy:0 and @cupy:1 on each; without a GPU @numpy",
        f"with GPUs {show(gpus)}, without {show(sorted(set(map(str, cpu))))}",
        likely(
            (
                gpus == [f"@cupy:{rank}" for rank in range(len(gpus))],
                "a node counts its own GPUs from 0 on: take comm.intra_rank",
            ),
            (len(set(gpus)) == 1 and gpus[0] != "@numpy", "all ranks of a node on one GPU"),
            (cpu == gpus, "ask gpu_is_usable()"),
            otherwise='f"@cupy:{comm.intra_rank}" is the name of a GPU, "@numpy" of the CPU',
        ),
    )


@contextlib.contextmanager
def machine_with(n_gpus: int) -> Iterator[list[str]]:
    """Let answers believe in a machine with so many GPUs; note the communicators they make."""
    made = []

    def create_communicator(communicator_name="pure_nccl", *args, **kwargs):
        made.append(communicator_name)
        return ranks_of(1)[0]

    runtime = SimpleNamespace(getDeviceCount=lambda: n_gpus)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    with (
        mock.patch("chainermn.create_communicator", create_communicator),
        mock.patch("allhands.train.device.gpu_is_usable", return_value=n_gpus > 0),
        mock.patch("chainer.backends.cuda.available", n_gpus > 0),
        mock.patch("chainer.backends.cuda.cupy", cupy),
    ):
        yield made


def shard(mark: Marker, shard: Callable) -> None:
    n_samples, seed, size = 103, 5, 4
    state = np.random.get_state()
    try:
        shares = [np.asarray(mark.run(shard, n_samples, comm, seed)) for comm in ranks_of(size)]
        again = [np.asarray(mark.run(shard, n_samples, comm, seed)) for comm in ranks_of(size)]
        other = np.asarray(mark.run(shard, n_samples, ranks_of(size)[0], seed + 1))
        alone = np.asarray(mark.run(shard, n_samples, ranks_of(1)[0], seed))
    finally:
        np.random.set_state(state)
    mark.need(
        all(share.ndim == 1 and share.dtype.kind in "iu" for share in shares),
        "an array of whole numbers: sample numbers",
        f"dtype {shares[0].dtype}, shape {show(shares[0].shape)}",
    )
    numbers = np.concatenate(shares)
    missing, twice = n_samples - len(np.unique(numbers)), len(numbers) - len(np.unique(numbers))
    repeatable = all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))
    once = mark.require(
        sorted(numbers.tolist()) == list(range(n_samples))
        and sorted(alone.tolist()) == list(range(n_samples)),
        1,
        f"each of {n_samples} samples on exactly one of {size} ranks",
        f"{missing} samples on no rank, and {twice} too many",
        likely(
            (
                not repeatable,
                "the ranks draw different orders: use the seed that is given, and no other random "
                "numbers",
            ),
            (
                all(len(np.unique(share)) == n_samples for share in shares),
                "every rank has all samples: take a part, such as order[comm.rank :: comm.size]",
            ),
            (np.array_equal(shares[0], shares[ON_A_NODE]), INTRA),
            (
                missing > 0 and twice > 5,
                "the ranks have different orders: shuffle with the same seed on all of them",
            ),
            (
                0 < twice <= size and missing == 0,
                "the shares need not be equally long: repeat no sample",
            ),
            (twice == 0 and missing > 0, f"{n_samples} is no multiple of {size}: the rest counts"),
            otherwise="shuffle all numbers, then cut them into shares",
        ),
    )
    sizes = [len(share) for share in shares]
    shuffled = not all(np.array_equal(share, np.sort(share)) for share in shares)
    mark.require(
        shuffled
        and repeatable
        and not np.array_equal(other, shares[0])
        and max(sizes) - min(sizes) <= 1,
        1,
        "shuffled shares whose sizes differ by one at most; the same for the same seed, others for "
        "another",
        f"sizes {show(sizes)}, the first numbers of rank 0 {show(shares[0][:6])}",
        likely(
            (not shuffled, "shuffle first: a file may be sorted"),
            (not repeatable, "the same seed must give the same shares"),
            (max(sizes) - min(sizes) > 1, "deal the samples out like cards: order[rank::size]"),
            otherwise="use the argument `seed`",
        ),
        after=once,
    )


def metrics(mark: Marker, metrics: Callable) -> None:
    drawn = _on_two_ranks(mark, programs.metrics_of, metrics)
    counts, found = [one for one, _ in drawn], [one for _, one in drawn]
    mark.run(lambda: found[0])
    names = ("exact_match", "loss_per_token")
    mark.need(
        all(isinstance(one, Mapping) and set(names) <= set(one) for one in found),
        "a dict with exact_match and loss_per_token on every rank",
        show(found),
    )
    for name, top, bottom, factor in (
        ("exact_match", "n_right", "n_sentences", 100),
        ("loss_per_token", "loss", "n_tokens", 1),
    ):
        right = factor * sum(one[top] for one in counts) / sum(one[bottom] for one in counts)
        own = [factor * one[top] / one[bottom] for one in counts]
        got = [float(one[name]) for one in found]
        mark.require(
            np.allclose(got, right),
            1,
            f"{name}: the ratio of the sums of all ranks, {right:.4g} here, on both ranks",
            " and ".join(f"{one:.4g}" for one in got),
            likely(
                (
                    np.allclose(got, np.mean(own)),
                    "that is the mean of the ranks' ratios: add up the counts first, and divide "
                    "then",
                ),
                (np.allclose(got, own), "each rank gives its own ratio: use all of `everyone`"),
                (np.allclose(got, right / 100), "in percent: times 100"),
                otherwise=f"sum of {top} divided by sum of {bottom}; the counts are new each time",
            ),
        )


def report(mark: Marker, report: Callable) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found = _on_two_ranks(mark, programs.reported, report)
    n_all = sum(programs.SENTENCES)
    mark.require(
        all(one == n_all for one in found),
        1,
        f"no rank waits for ever, and both return the sum, {n_all}",
        show(found),
        likely(
            (found == list(programs.SENTENCES), "the sum of both ranks: comm.allreduce"),
            otherwise="call comm.allreduce on every rank, outside of the `if`, and return it",
        ),
    )
    lines = printed.getvalue().splitlines()
    mark.require(
        len(lines) == 1 and lines[0].startswith("[0]") and str(n_all) in lines[0],
        1,
        f"one line, from rank 0 alone, with the number {n_all}",
        show(lines),
        likely(
            (
                len(lines) > 1 and all(line.startswith("[0]") for line in lines),
                "rank 0 alone has printed, as it should: one line is enough",
            ),
            (len(lines) > 1, "the `if comm.rank == 0:` stays around the print"),
            otherwise="rank 0 prints the sum",
        ),
    )


def _on_two_ranks(mark: Marker, program: Callable, *answers: Callable) -> list:
    """Run the answers on two ranks; a job that hangs or fails ends the check with its sentence."""
    for limit_s in HANG_S:
        try:
            found = on_ranks(program, *answers, ranks=2, time_limit_s=limit_s)
            return mark.run(lambda found=found: found)
        except launch.TimeUp as error:
            if limit_s == HANG_S[-1] or any(_stands_in(each, str(error)) for each in answers):
                mark.need(
                    False,
                    "a collective that all ranks call",
                    str(error),
                    "who calls it, and who does not? Take the call out of the `if`",
                )
        except launch.LaunchError as error:
            mark.need(False, "a function that runs on two ranks", str(error), _why(str(error)))
    raise AssertionError("the last limit ends the check or returns")


def _stands_in(function: Callable, sentence: str) -> bool:
    """Whether a sentence about ranks that wait quotes a line of this function."""
    lines = (line.strip() for line in inspect.getsource(function).splitlines())
    return any(f"`{line}`" in sentence for line in lines if line)


def _why(sentence: str) -> str:
    if "FileNotFoundError" in sentence:
        return (
            "a rank loads before rank 0 has written. Let all ranks wait at the end of `save`: "
            "comm.mpi_comm.Barrier()"
        )
    return ""


def resume(mark: Marker, save: Callable, load: Callable) -> None:
    if not (save.__code__.co_names and load.__code__.co_names):  # a body that names nothing
        raise NotImplementedError
    found = _on_two_ranks(mark, programs.stopped, save, load)
    wrote = [rank for rank, one in enumerate(found) if one["wrote"]]
    saved = mark.require(
        wrote == [0] and len(set(found[0]["wrote"])) == 2,
        1,
        "rank 0 alone writes, a file for the model and one for the optimizer",
        f"the ranks that write: {wrote}; rank 0 writes "
        f"{show([Path(one).name for one in found[0]['wrote']])}",
        likely(
            (len(wrote) > 1, "two ranks write one file at once: if comm.rank == 0"),
            (
                len(found[0]["wrote"]) == 1,
                "`for name, thing in things.items()`: each has a file of its own name",
            ),
            otherwise="chainer.serializers.save_npz(folder / f'{name}.npz', thing)",
        ),
    )
    mark.require(
        all(one["same"] and one["updates"] == programs.STOP for one in found),
        1,
        "a run that stops and goes on ends where a run without a stop ends, on both ranks",
        ", ".join(
            f"rank {rank}: {'the same' if one['same'] else 'other'} parameters in the end, "
            f"{one['updates']} updates known after `load`"
            for rank, one in enumerate(found)
        ),
        likely(
            (found[0]["loaded"] and not found[1]["loaded"], "all ranks must load, not rank 0 only"),
            (
                all(one["loaded"] for one in found),
                "the optimizer too: Adam remembers means of gradients, and counts its updates",
            ),
            otherwise="chainer.serializers.load_npz(folder / f'{name}.npz', thing), for each thing",
        ),
        after=saved,
    )


def same_answer(
    mark: Marker,
    shard: Callable,
    multi_node: Callable,
    total: Callable,
    speaks: Callable,
    rate_factor: Callable,
) -> None:
    rules = {"none": 1.0, "sqrt": 2.0, "linear": 4.0}
    factors = {rule: mark.run(rate_factor, rule, 4) for rule in rules}
    said = [mark.run(speaks, comm) for comm in ranks_of(4)]
    mark.require(
        all(np.isclose(float(factors[rule]), right) for rule, right in rules.items())
        and [bool(one) for one in said] == [True, False, False, False],
        1,
        "for 4 ranks the factors 1 (none), 2 (sqrt) and 4 (linear); of 4 ranks on two nodes, rank "
        "0 speaks",
        f"factors {show(factors)}; the ranks that speak: {show([bool(one) for one in said])}",
        likely(
            (all(said), "only one rank speaks: comm.rank == 0"),
            (said[0] and said[ON_A_NODE] and not said[1], INTRA),
            (sum(map(bool, said)) > 1, "only one rank of all nodes speaks: comm.rank == 0"),
            (
                np.isclose(float(factors["linear"]), 0.25),
                "a larger batch needs a larger rate: multiply, do not divide",
            ),
            otherwise="linear is `ranks`, sqrt its square root, none is 1",
        ),
    )
    with tempfile.TemporaryDirectory(prefix="allhands-lab2-") as folder:
        mine = (shard, multi_node, total, speaks, rate_factor)
        program = eight_edits.write(Path(folder) / "mine.py", *mine)
        try:
            found = compare(program, ranks=2)
        except (launch.LaunchError, ValueError) as error:
            mark.need(False, "a program that runs on two ranks", str(error))
    first = found.difference
    mark.require(
        first is None,
        3,
        "two ranks give the answer of one",
        f"the first difference is in `{first.name}`: {first.seen}" if first else "",
        f"{first.remedy or first.cause}" if first else "",
    )
