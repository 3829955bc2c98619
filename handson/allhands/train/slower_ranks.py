"""What each rank of the lab bug4's program does; slower.py starts it, and says what it is.

    mpiexec -n 2 python -m allhands.train.slower_ranks FOLDER...     # folders that slower.py wrote

Synchronous data parallelism by hand: each rank sums the gradient over its samples, an all-reduce
adds up gradients and numbers of samples, and all ranks make the same update. So a batch may be
smaller on one rank, or empty. The CPU seconds of a rank count all its threads.
"""

import contextlib
import gzip
import importlib
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from allhands import config as configs
from allhands import launch
from allhands.config import TrainConfig
from allhands.doctor.machine import Machine
from allhands.trace import facts
from allhands.trace.events import Recorder
from allhands.train.excepthook import end_job_on_error

N_HELD_OUT = 360
EVALUATIONS = 5  # an epoch: the same work, however many steps it has
N_INPUTS, N_CLASSES = 64, 10
PROBES = 15
COLLECTIVES = ("allreduce", "Allreduce", "gather", "scatter", "bcast", "Bcast", "allgather")


class Stopwatch:
    """Records spans on two clocks, wall and CPU; a span within another one interrupts it."""

    def __init__(self, comm: MPI.Comm, folder: Path) -> None:
        comm.Barrier()
        zero_s = comm.bcast(time.perf_counter())
        self.recorders = [
            Recorder(comm.rank, time.perf_counter, folder / f"events.rank{comm.rank}.jsonl",
                     start_s=time.perf_counter() - zero_s),
            Recorder(comm.rank, time.process_time, folder / f"cpu.rank{comm.rank}.jsonl"),
        ]  # fmt: skip
        self._open: list[tuple[str, str, list[float]]] = []

    def step(self, number: int) -> None:
        for recorder in self.recorders:
            recorder.step = number

    @contextlib.contextmanager
    def span(self, what: str, name: str = "") -> Iterator[None]:
        self._close()
        self._open.append((what, name, self._now_s()))
        try:
            yield
        finally:
            self._close()
            self._open.pop()
            if self._open:
                self._open[-1] = (*self._open[-1][:2], self._now_s())

    def _now_s(self) -> list[float]:
        return [recorder.now_s() for recorder in self.recorders]

    def _close(self) -> None:
        if self._open:
            what, name, starts_s = self._open[-1]
            for recorder, start_s in zip(self.recorders, starts_s, strict=True):
                recorder.add(what, name, start_s, recorder.now_s())


class Timed:
    """An mpi4py communicator whose collectives are events `communicate`, named by the method."""

    def __init__(self, comm: MPI.Comm, watch: Stopwatch) -> None:
        self._comm, self._watch = comm, watch

    def __getattr__(self, name: str):
        method = getattr(self._comm, name)
        if name not in COLLECTIVES:
            return method

        def timed(*args, **kwargs):
            with self._watch.span("communicate", name):
                return method(*args, **kwargs)

        return timed


class Images:
    """The images as lines of text. The first 360 of a shuffled order are held out."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.n_read = 0

    def open(self) -> None:
        packed = (files("allhands.data") / "images" / "digits.csv.gz").read_bytes()
        lines = gzip.decompress(packed).decode().split()
        self._lines = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]

    @property
    def n_samples(self) -> int:
        return len(self._lines) - N_HELD_OUT

    def read(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Samples of the training set: images (n, 64) float32 and digits (n,)."""
        self.n_read += len(numbers)
        return self._parse([N_HELD_OUT + int(i) for i in numbers])

    def read_held_out(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        return self._parse([int(i) for i in numbers])

    def _parse(self, rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
        values = [[int(word) for word in self._lines[i].split(",")] for i in rows]
        table = np.array(values, np.float32).reshape(-1, N_INPUTS + 1)
        return table[:, :N_INPUTS] / 8 - 1, table[:, N_INPUTS].astype(np.int64)


class Network:
    """64 inputs, two hidden layers, 10 classes; `flat` holds all parameters."""

    def __init__(self, n_hidden: int) -> None:
        shapes = [(N_INPUTS, n_hidden), (n_hidden, n_hidden), (n_hidden, N_CLASSES)]
        ends = np.cumsum([rows * columns for rows, columns in shapes])
        random = np.random.default_rng(0)
        self.flat = np.empty(ends[-1], np.float32)
        self._cut = [(slice(end - r * c, end), (r, c))
                     for end, (r, c) in zip(ends, shapes, strict=True)]  # fmt: skip
        for weights, (rows, _) in zip(self.layers(self.flat), shapes, strict=True):
            weights[...] = random.standard_normal(weights.shape) * np.sqrt(2 / rows)

    def layers(self, flat: np.ndarray) -> list[np.ndarray]:
        return [flat[where].reshape(shape) for where, shape in self._cut]

    def forward(self, images: np.ndarray) -> list[np.ndarray]:
        """The inputs of the three layers, and the class scores (n, 10)."""
        w1, w2, w3 = self.layers(self.flat)
        one = np.maximum(images @ w1, 0)
        two = np.maximum(one @ w2, 0)
        return [images, one, two, two @ w3]

    def loss(self, scores: np.ndarray, digits: np.ndarray) -> tuple[float, np.ndarray]:
        """Cross-entropy, summed over the samples, and its gradient (n, 10)."""
        shifted = scores - scores.max(axis=1, keepdims=True, initial=-np.inf)
        p = np.exp(shifted)
        p /= p.sum(axis=1, keepdims=True)
        rows = np.arange(len(digits))
        loss = -float(np.log(np.maximum(p[rows, digits], 1e-30)).sum())
        p[rows, digits] -= 1
        return loss, p

    def backward(self, made: list[np.ndarray], error: np.ndarray, out: np.ndarray) -> None:
        """Write the gradient of all parameters, summed over the samples, into `out`."""
        images, one, two, _ = made
        _, w2, w3 = self.layers(self.flat)
        g1, g2, g3 = self.layers(out)
        np.matmul(two.T, error, out=g3)
        error = (error @ w3.T) * (two > 0)
        np.matmul(one.T, error, out=g2)
        error = (error @ w2.T) * (one > 0)
        np.matmul(images.T, error, out=g1)


def train(program, config: TrainConfig, comm: MPI.Comm, folder: Path) -> None:
    """Run the program on this rank, and leave its files in `folder`."""
    watch = Stopwatch(comm, folder)
    timed = Timed(comm, watch)
    images, network = Images(), Network(config.n_hidden)
    n_parameters = network.flat.size
    message = np.zeros(n_parameters + 2, np.float32)  # gradient, loss, number of samples
    summed = np.zeros_like(message)
    batch_size = int(program.batch_of_rank(config.batch_size, comm))
    lines, held_out = [], set()
    switches = _switches()
    watch.step(1)
    with watch.span("batch", "open"):
        images.open()
    n_samples = images.n_samples
    with watch.span("communicate", "parameters"):
        comm.Bcast(network.flat)
    _probe(comm, watch, message, summed)
    n_mine = update = 0
    for epoch in range(config.epochs):
        mine = np.asarray(program.numbers(n_samples, comm, epoch))
        n_mine = len(mine)
        watch.step(update + 1)
        n_steps = timed.allreduce(-(-n_mine // batch_size), MPI.MAX)
        for step in range(n_steps):
            update += 1
            watch.step(update)
            with watch.span("batch"):
                numbers = mine[step * batch_size : (step + 1) * batch_size]
                pixels, digits = program.load(images.read, numbers, timed)
            with watch.span("forward"):
                made = network.forward(pixels)
                loss, error = network.loss(made[-1], digits)
            with watch.span("backward"):
                network.backward(made, error, message[:n_parameters])
                message[n_parameters:] = loss, len(digits)
            if comm.size > 1:
                with watch.span("communicate", "all"):
                    comm.Allreduce(message, summed)
            else:
                summed = message
            with watch.span("update"):
                loss, n_all = map(float, summed[n_parameters:])
                network.flat -= config.learning_rate / n_all * summed[:n_parameters]
            lines.append({"update": update, "epoch": epoch + (step + 1) / n_steps,
                          "loss": loss / n_all, "n_samples": int(n_all),
                          "elapsed_s": watch.recorders[0].now_s()})  # fmt: skip
            if EVALUATIONS * (step + 1) // n_steps > EVALUATIONS * step // n_steps:

                def count_right(numbers: Sequence[int]) -> int:
                    held_out.update(map(int, numbers))
                    pixels, digits = images.read_held_out(numbers)
                    return int((network.forward(pixels)[-1].argmax(axis=1) == digits).sum())

                with watch.span("evaluate"):
                    share = program.evaluate(count_right, N_HELD_OUT, timed)
                lines.append({"update": update, "valid_accuracy": float(share)})
    _probe(comm, watch, message, summed)
    for recorder in watch.recorders:
        recorder.flush()
    facts.write(
        folder,
        facts.Facts(
            rank=comm.rank,
            ranks=comm.size,
            **facts.here(Machine().cores()),
            batch_size=batch_size,
            n_samples=n_samples,
            n_mine=n_mine,
            n_held_out=N_HELD_OUT,
            n_held_out_mine=len(held_out),
            n_read=images.n_read,
            n_switches=_switches() - switches,
        ),
    )
    if comm.rank == 0:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
        np.save(folder / "parameters.npy", network.flat)


def _probe(comm: MPI.Comm, watch: Stopwatch, message: np.ndarray, summed: np.ndarray) -> None:
    """Exchange as in a step, some times in a row: how long does it take if all are there?"""
    for _ in range(PROBES if comm.size > 1 else 0):
        with watch.span("communicate", "probe"):
            comm.Allreduce(message, summed)


def _switches() -> int:
    """How often the system has taken the core from this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def functions(folder: Path) -> SimpleNamespace:
    """Read the program that slower.py wrote into `folder`."""
    spec = importlib.util.spec_from_file_location("functions", folder / "functions.py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    where = json.loads((folder / "functions.json").read_text(encoding="utf-8"))
    found: dict[str, Callable] = {}
    for part, (module, name) in where.items():
        found[part] = getattr(importlib.import_module(module) if module else written, name)
    return SimpleNamespace(**found)


def main(folders: Sequence[str]) -> None:
    comm = MPI.COMM_WORLD
    end_job_on_error(comm)
    launch.expect_world(comm)
    for folder in map(Path, folders):
        program, config = functions(folder), configs.load(folder / "config.json")
        with (
            open(folder / f"log.rank{comm.rank}", "w", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
        ):
            train(program, config, comm, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
