"""What does every rank do in a comparison? It runs one program step by step, and writes it down.

    mpiexec -n 2 python -m allhands.train.compare.rank FOLDER

FOLDER/request.json says which programs, how many steps, which settings. For program i the ranks
leave pickled records in FOLDER/i: `rankN.NAME` of the N ranks, `alone.NAME` of the run alone,
which rank 0 makes with a communicator of size 1. `checks` reads them.

The order: build; list the samples; alone: build and make the steps; first update; the steps;
evaluation; evaluation alone, with the parameters of the ranks.
"""

import argparse
import json
import random
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from allhands import launch
from allhands.train.compare.model import (
    Alone,
    Updates,
    arrays,
    average,
    backward,
    described,
    fill,
    gradients,
    same_bits,
    step_count,
)
from allhands.train.compare.parts import Parts
from allhands.train.compare.programs import Builder
from allhands.train.compare.records import Arrays, Records, fit_together
from allhands.train.compare.watch import Watch, innermost
from allhands.train.excepthook import end_job_on_error
from allhands.train.waiting import nap_until_all_are_here

RAISED_WAIT_S = 1.5  # the others' errors come within this time


class OneRank:
    """One rank's part in the comparison of one program."""

    def __init__(self, build: Builder, folder: Path, steps: int) -> None:
        self.build, self.n_steps = build, steps
        self.own = MPI.COMM_WORLD.Dup()  # what the program sends does not get mixed with ours
        self.rank, self.size = self.own.rank, self.own.size
        self.me = f"rank{self.rank}"
        self.records = Records(folder)
        self.watch = Watch(folder, self.rank, self.size)

    def compare(self) -> None:
        """Make all records; stop early where the ranks' programs do not fit together."""
        randomness = np.random.get_state(), random.getstate()
        with self.watch.stage("build"):
            comm = self.build.communicator(MPI.COMM_WORLD)
            self.records.put(self.me, "world", comm.size)
            parts = self.build(comm)
            self.records.put(self.me, "built", described(parts))
        with self.watch.stage("samples"):
            epochs = [[np.asarray(b).ravel() for b in parts.epoch(number)] for number in (0, 1)]
            self.records.put(self.me, "epochs", epochs)
        self.meet()
        if self.rank == 0:
            np.random.set_state(randomness[0])
            random.setstate(randomness[1])
            with self.watch.stage("build alone"):
                alone = self.build(self.build.communicator(MPI.COMM_SELF))
                self.records.put("alone", "built", described(alone))
        self.meet()
        steps = self.batches()
        if steps:
            if self.rank == 0:
                with self.watch.stage("steps alone"):
                    self.run_alone(alone, steps, randomness)
            self.meet()
            self.run(parts, [step[self.rank] for step in steps])
            self.evaluate(parts)
            self.meet()
            if self.rank == 0:
                with self.watch.stage("evaluate alone"):
                    fill(alone.model, self.records.get(self.me, "last"))
                    for name in ("evaluated", "evaluated_again"):
                        self.records.put("alone", name, dict(alone.evaluate() or {}))
        self.meet()
        self.watch.over()

    def meet(self) -> None:
        """Wait for the other ranks without taking a core from them."""
        nap_until_all_are_here(self.own)

    def batches(self) -> list[list[np.ndarray]]:
        """[step][rank] -> sample numbers; none where the programs cannot run together.

        The first step is the one with the most unequal batches: there wrong weights show.
        """
        built = [
            *self.records.of_ranks("built", self.size),
            self.records.get("alone", "built"),
        ]
        if not fit_together([one["shapes"] for one in built]):
            return []
        epochs = [epochs[0] for epochs in self.records.of_ranks("epochs", self.size)]
        steps = [list(step) for step in zip(*epochs, strict=False)]
        steps = [step for step in steps if all(len(batch) for batch in step)]

        def unequal(step: list[np.ndarray]) -> float:
            sizes = [len(batch) for batch in step]
            return -max(sizes) / min(sizes)

        first = min(range(len(steps)), key=lambda i: unequal(steps[i]), default=0)
        return (steps[first : first + 1] + steps[:first] + steps[first + 1 :])[: self.n_steps]

    def run(self, parts: Parts, batches: Sequence[np.ndarray]) -> None:
        """The first update and the steps, on all ranks."""
        updates = Updates(parts)
        with self.watch.stage("first update"):
            t = step_count(parts.optimizer)
            backward(parts, batches[0])
            start, raw = arrays(parts.model), gradients(parts.model)
            first = updates.update()
            after = arrays(parts.model)
            only_broadcast = (
                step_count(parts.optimizer) == t if t is not None else same_bits(start, after)
            )
            self.records.put(self.me, "only_broadcast", only_broadcast)
        self.meet()
        only_broadcast = self.records.get("rank0", "only_broadcast")
        self.records.put(self.me, "start", after if only_broadcast else start)
        done = 0 if only_broadcast else 1
        if done:
            self.records.put(self.me, "raw", raw)
            self.put_gradients(self.me, first)
        for number in range(done, len(batches)):
            with self.watch.stage(f"step {number + 1}"):
                backward(parts, batches[number])
                if number == 0:
                    self.records.put(self.me, "begun", arrays(parts.model))
                    self.records.put(self.me, "raw", gradients(parts.model))
                both = updates.update()
                if number == 0:
                    self.put_gradients(self.me, both)
        self.records.put(self.me, "last", arrays(parts.model))
        self.records.put(self.me, "batches", [len(batch) for batch in batches])

    def put_gradients(self, who: str, both: tuple[Arrays, Arrays]) -> None:
        for name, one in zip(("gradient", "used"), both, strict=True):
            self.records.put(who, name, one)

    def run_alone(self, parts: Parts, steps: list[list[np.ndarray]], randomness: tuple) -> None:
        """The same steps, each with all ranks' samples; and what mistakes would give."""
        batches = [np.concatenate(step) for step in steps]
        one = Alone(parts, batches[0])
        self.records.put("alone", "start", one.start)
        self.put_gradients("alone", one.run(batches))
        self.records.put("alone", "last", arrays(parts.model))
        fill(parts.model, one.start)
        raw, exchanged = zip(*[one.gradient(batch) for batch in steps[0]], strict=True)
        mean, total = average(raw), average(raw, len(raw))
        self.records.put("alone", "raw", list(raw))
        self.records.put("alone", "own_gradients", list(exchanged))
        self.records.put(
            "alone",
            "mistakes",
            {
                "mean of exchanged": average(exchanged),
                "exchanged of mean": one.exchanged(mean),
                "exchanged of sum": one.exchanged(total),
            },
        )
        np.random.set_state(randomness[0])
        random.setstate(randomness[1])
        again = self.build(self.build.communicator(MPI.COMM_SELF))
        backwards = [batch[::-1] for batch in batches]
        other = Alone(again, backwards[0])
        self.records.put("alone", "gradient_again", other.run(backwards)[0])
        self.records.put("alone", "last_again", arrays(again.model))

    def evaluate(self, parts: Parts) -> None:
        """All ranks evaluate the parameters of rank 0."""
        self.meet()
        fill(parts.model, self.records.get("rank0", "last"))
        with self.watch.stage("evaluate"):
            self.records.put(self.me, "evaluated", dict(parts.evaluate() or {}))


def note_error(records: Records, me: str, watch: Watch, error: BaseException) -> None:
    """Write down what a rank raised, and in which line of the program."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    found = innermost((frame.filename, frame.lineno or 0) for frame in frames)
    records.put(
        me,
        "raised",
        {
            "what": f"{type(error).__name__}: {error}".split(", error stack")[0],
            "place": f"line {found[1]} of {Path(found[0]).name}" if found else "",
            "stage": watch.now or "",
            "by_mpi": isinstance(error, MPI.Exception),
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    end_job_on_error(MPI.COMM_WORLD, RAISED_WAIT_S)
    launch.expect_world(MPI.COMM_WORLD)
    for number, target in enumerate(request["targets"]):
        build = Builder(target, tuple(request["settings"]), MPI.COMM_WORLD.size, folder)
        rank = OneRank(build, folder / str(number), request["steps"])
        try:
            rank.compare()
        except SystemExit as stop:  # no except hook is called for it, and the others would wait
            error = RuntimeError(f"the program called sys.exit({stop.code!r})")
            note_error(rank.records, rank.me, rank.watch, error.with_traceback(stop.__traceback__))
            raise error from stop
        except Exception as error:
            note_error(rank.records, rank.me, rank.watch, error)
            raise


if __name__ == "__main__":
    main()
