"""What each rank does while the speed-up is measured; speedup.py says what is measured and why."""

import time
from pathlib import Path

import chainermn
from mpi4py import MPI

from allhands import launch
from allhands.config import lab1_cpu
from allhands.trace import scaling
from allhands.trace.events import Event, Recorder, write_events
from allhands.trace.scaling import Measured
from allhands.train import device as devices
from allhands.train import parallel
from allhands.train.build import Corpus, open_corpus
from allhands.train.excepthook import end_job_on_error
from allhands.train.exchange import common_recorder, cut_batches, train_steps
from allhands.train.recorder import device_clock
from allhands.train.speedup import RESULTS, Plan, events_name

NAP_S = 0.005  # between two looks of a rank that has nothing to do


def run(plan: Plan, out: Path | None) -> list[Measured] | None:
    """Measure in the ranks of this job; rank 0 leaves files in `out` and returns the results."""
    comm = MPI.COMM_WORLD
    end_job_on_error(comm)
    launch.expect_world(comm)
    if out is not None and comm.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
    measured = measure_here(plan, comm, out)
    if out is not None and measured is not None:
        scaling.write(measured, out / RESULTS)
    return measured


def measure_here(plan: Plan, comm: MPI.Comm, folder: Path | None) -> list[Measured] | None:
    """Measure in the ranks of `comm`, which all call it. Rank 0 returns the results, others None.

    Raises ValueError if `comm` has fewer ranks than the plan's largest world, or if a node has
    several GPUs and more ranks than that.
    """
    if comm.size < max(plan.ranks):
        raise ValueError(
            f"The plan measures {max(plan.ranks)} ranks, and this job has {comm.size}. Start more "
            f"ranks, or give --ranks {comm.size}."
        )
    device = plan.device
    if device == "auto":
        device = parallel.device_of(chainermn.create_communicator("naive", comm))
    clock = device_clock(devices.choose(device))
    corpus = open_corpus(lab1_cpu())
    groups = {}
    for n in plan.ranks:
        group = comm.Split(0 if comm.rank < n else MPI.UNDEFINED, comm.rank)
        if group != MPI.COMM_NULL:
            groups[n] = _communicator(plan, group)
    rounds = {n: [] for n in plan.ranks}
    for number in range(plan.rounds):
        turn = number % len(plan.ranks)
        for n in plan.ranks[turn:] + plan.ranks[:turn]:  # each world comes first once
            if n in groups:
                recorder = common_recorder(groups[n], clock)
                start_s, start_cpu_s = time.perf_counter(), time.process_time()
                _train(plan, groups[n], recorder, n, corpus, device)
                cpu_s, wall_s = time.process_time() - start_cpu_s, time.perf_counter() - start_s
                gathered = groups[n].mpi_comm.gather((recorder.events, cpu_s / wall_s))
                if comm.rank == 0:
                    events = sorted(event for one, _ in gathered for event in one)
                    rounds[n].append((events, min(share for _, share in gathered)))
                    if folder is not None:
                        write_events(folder / events_name(n, number), events)
            _nap_until_all_are_here(comm)
    return [_result(plan, n, rounds[n]) for n in plan.ranks] if comm.rank == 0 else None


def _train(
    plan: Plan, communicator, recorder: Recorder, n: int, corpus: Corpus, device: str
) -> None:
    n_rows, parts = plan.cut(n)
    train_steps(
        communicator,
        recorder,
        plan.warm_up + plan.steps - 1,  # step 0 is the first call, which updates nothing
        batches=cut_batches(corpus.train, n_rows, communicator.rank, parts),
        corpus=corpus,
        device=device,
        double_buffering=plan.double_buffering,
    )


def _communicator(plan: Plan, group: MPI.Comm):
    options = (
        {} if plan.allreduce_dtype == "float32" else {"allreduce_grad_dtype": plan.allreduce_dtype}
    )
    return parallel.communicator(plan.communicator, mpi_comm=group, **options)


def _nap_until_all_are_here(comm: MPI.Comm) -> None:
    """A barrier that leaves the core to others: MPI's own looks without a pause."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP_S)


def _result(plan: Plan, n: int, rounds: list[tuple[list[Event], float]]) -> Measured:
    per_step = plan.samples_per_step(n)
    shares = [scaling.shares(found, plan.warm_up) for found, _ in rounds]
    speeds = [scaling.samples_per_s(found, per_step, plan.warm_up) for found, _ in rounds]
    return Measured(
        n,
        plan.mode,
        per_step // n,
        tuple(speeds),
        tuple(per_step / speed for speed in speeds),
        tuple(share.wait for share in shares),
        tuple(share.transfer for share in shares),
        tuple(core_share for _, core_share in rounds),
    )
