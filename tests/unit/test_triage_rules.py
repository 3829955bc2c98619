"""The rules: real texts of libraries and launchers, and the cause that each stands for.

Every rule of the table is met by at least one text here, so that none is dead.
"""

from pathlib import Path

import pytest

from allhands import triage
from allhands.triage.conditions import CONDITIONS, CULPRITS
from allhands.triage.rules import RULES, SLOW

LOGS = Path(__file__).parent / "triage_logs"
END = "srun: error: n1: task 1: Exited with exit code 1"


def written(folder: Path, raised: dict[int, str], before: str = "", ranks: int = 4) -> Path:
    """A log of srun -l in which ranks raise what is given."""
    lines = [before] if before else []
    for rank in range(ranks):
        lines.append(f"{rank}: rank {rank} of {ranks}")
    for rank, text in raised.items():
        said = ["Traceback (most recent call last):", '  File "t.py", line 3, in f', "    g()"]
        lines += [f"{rank}: {line}" for line in [*said, *text.split("\n")]]
    log = folder / "job.log"
    log.write_text("\n".join([*lines, END]) + "\n")
    return log


ALL = range(4)
ON_ALL = {
    "RuntimeError: CUDA error: device-side assert triggered": "device_assert",
    "RuntimeError: CUDA error: an illegal memory access was encountered": "illegal_memory_access",
    "RuntimeError: No CUDA GPUs are available": "no_gpu_visible",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB": "oom_all_ranks",
    "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 9 bytes": "oom_all_ranks",
    "TypeError: incompatible array types are mixed in the forward input (LinearFunction).": (
        "cpu_gpu_mixed"
    ),
    "OSError: [Errno 28] No space left on device: 'out/model.npz'": "disk_full",
    "OSError: [Errno 98] Address already in use": "port_in_use",
    "cupy.cuda.nccl.NcclError: NCCL_ERROR_SYSTEM_ERROR: unhandled system error": (
        "nccl_system_error"
    ),
    "ImportError: libmpi.so.40: cannot open shared object file: No such file": "library_missing",
    "ModuleNotFoundError: No module named 'chainer'": "env_not_activated",
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 "
    "clients joined.": "rendezvous_failed",
    "RuntimeError: unscale_() has already been called on this optimizer": "grad_scaler_misuse",
    "ValueError: Attempting to unscale FP16 gradients.": "grad_scaler_misuse",
    "RuntimeError: expected scalar type Half but found Float": "dtype_mismatch",
    "MemoryError: ": "host_oom_sigkill",
    "FloatingPointError: Minimum loss scale reached (0.0001).": "amp_scale_collapse",
    "chainerx.DeviceError: Device (native:0) is not compatible with array's device (native:1).": (
        "array_on_wrong_device"
    ),
    "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated": "conditional_collective",
    "mpi4py.MPI.Exception: Other MPI error, error stack: message sizes do not match across "
    "processes": "conditional_collective",
    "TypeError: f() missing 1 required positional argument: 'x'": "code_bug_all_ranks",
    "ValueError: need at least one array to stack": "empty_shard",
}
ON_SOME = {
    "ValueError: The device where the array resides (0) is different from the current device "
    "({r}). Peer access is unavailable between these devices.": "array_on_wrong_device",
    "RuntimeError: CUDA error: invalid device ordinal": "invalid_device_ordinal",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "gpu_hardware_error",
    "RuntimeError: Parameters which did not receive grad for rank {r}: a.weight": (
        "unused_parameters"
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB": "oom_one_rank",
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ": "host_oom_sigkill",
    "OSError: [Errno 28] Kein Platz: '/dev/shm/psm_{r}'": "shm_too_small",
    "RuntimeError: NCCL WARN socketStartConnect: Connect to 10.1.0.{r}<4> failed : No route to "
    "host": "wrong_network_interface",
}


@pytest.mark.parametrize("text", ON_ALL)
def test_a_text_of_all_ranks_has_its_cause(text, tmp_path):
    answer = triage.triage([written(tmp_path, dict.fromkeys(ALL, text))])
    assert answer.cause_id == ON_ALL[text]
    assert answer.duplicate_count == 4


@pytest.mark.parametrize("text", ON_SOME)
def test_a_text_of_some_ranks_has_its_cause_and_depends_on_the_rank(text, tmp_path):
    raised = {rank: text.replace("{r}", str(rank)) for rank in (2, 3)}
    answer = triage.triage([written(tmp_path, raised)])
    assert answer.cause_id == ON_SOME[text]
    assert answer.rank_dependent is True
    assert answer.root_ranks == (2, 3)
    assert answer.culprit_ranks == (2, 3)


def test_a_shape_that_one_rank_reports_of_another(tmp_path):
    text = "ValueError: Shape does not match: ((8,),) at rank 0 while ((9,),) at rank 3"
    answer = triage.triage([written(tmp_path, {0: text})])
    assert (answer.cause_id, answer.culprit_ranks) == ("param_mismatch", (3,))
    assert answer.root_ranks == (0,)


def test_ranks_that_all_differ_from_rank_0_point_at_rank_0(tmp_path):
    text = (
        "RuntimeError: [{}]: params[0] in this process with sizes [9, 2] appears not to match "
        "sizes of the same param in process 0."
    )
    answer = triage.triage([written(tmp_path, {r: text.format(r) for r in (1, 2, 3)})])
    assert (answer.cause_id, answer.culprit_ranks) == ("param_mismatch", (0,))


def test_the_odd_count_of_parameters_is_found_by_voting(tmp_path):
    text = (
        "RuntimeError: DDP expects same model across all ranks, but Rank {} has 6 params, while "
        "rank 2 has inconsistent 4 params."
    )
    answer = triage.triage([written(tmp_path, {r: text.format(r) for r in (0, 1, 3)})])
    assert (answer.cause_id, answer.culprit_ranks) == ("param_mismatch", (2,))


def test_a_store_that_waits_for_rank_0_points_at_rank_0(tmp_path):
    text = (
        "torch.distributed.DistBackendError: [{r}] is setting up NCCL communicator and retrieving "
        "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got "
        "error: wait timeout after 600000ms"
    )
    answer = triage.triage([written(tmp_path, {r: text.format(r=r) for r in (1, 2, 3)})])
    assert answer.cause_id == "rank_missing_at_barrier"
    assert answer.culprit_ranks == (0,)


def test_bus_errors_of_loaders_are_shared_memory(tmp_path):
    before = "ERROR: Unexpected bus error: this might be caused by insufficient shared memory (shm)"
    text = "RuntimeError: DataLoader worker (pid(s) 4411) exited unexpectedly"
    answer = triage.triage([written(tmp_path, {1: text}, before)])
    assert answer.cause_id == "shm_too_small"


@pytest.mark.parametrize(
    ("how", "cause_id", "root"),
    [
        ("Killed", "host_oom_sigkill", "SIGKILL"),
        ("Out Of Memory", "host_oom_sigkill", "SIGKILL"),
        ("Segmentation fault (core dumped)", "segmentation_fault", "SIGSEGV"),
        ("Bus error (core dumped)", "shm_too_small", "SIGBUS"),
        ("Exited with exit code 137", "host_oom_sigkill", "SIGKILL"),
        ("Exited with exit code 3", "exit_without_message", "ExitCode"),
    ],
)
def test_how_a_task_ended_without_a_word(how, cause_id, root, tmp_path):
    log = tmp_path / "job.log"
    log.write_text("0: step 1\n1: step 1\n2: step 1\n" + f"srun: error: n1: task 2: {how}\n")
    answer = triage.triage([log])
    assert (answer.cause_id, answer.root_error_class) == (cause_id, root)
    assert answer.culprit_ranks == (2,)


def test_a_launcher_that_refuses_its_options_is_no_ranks_fault(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "[mpiexec@vm] match_arg (lib/utils/args.c:166): unrecognized argument tag-output\n"
        "[mpiexec@vm] main (mpiexec.c:49): error parsing parameters\n"
    )
    answer = triage.triage([log])
    assert (answer.cause_id, answer.root_ranks) == ("launcher_refused", ())
    assert answer.rank_dependent is False


def test_tracebacks_that_are_all_cut_are_a_failure_without_a_name(tmp_path):
    log = tmp_path / "job.log"
    body = ["Traceback (most recent call last):", '  File "a.py", line 3, in f']
    log.write_text("".join(f"[1,{r}]<stderr>:{text}\n" for r in (0, 1) for text in body))
    answer = triage.triage([log])
    assert (answer.cause_id, answer.duplicate_count) == ("cut_tracebacks", 0)
    assert str(answer.count).startswith("0 complete, 2 cut")


def test_a_driver_message_alone_is_hardware(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(
        "0: step 1\n1: step 1\n1: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
        + END
    )
    answer = triage.triage([log])
    assert (answer.cause_id, answer.culprit_ranks) == ("gpu_hardware_error", (1,))


def test_a_job_that_a_user_cancels_did_not_fail_by_itself(tmp_path):
    log = tmp_path / "job.log"
    steps = [f"{r}: epoch 1 step {s}\n" for s in range(5) for r in range(4)]
    end = "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-02T13:00:17 ***\n"
    log.write_text("".join(steps) + end)
    answer = triage.triage([log])
    assert (answer.cause_id, answer.culprit_ranks) == ("cancelled", ())


def test_a_rank_that_waits_elsewhere_is_the_odd_one(tmp_path):
    log = tmp_path / "job.log"
    lines = [f"{r}: step {s}" for s in range(9) for r in range(4)]
    lines += [f"{r}: waiting in allreduce" for r in (0, 1, 3)] + ["2: reading tile 7 again"]
    end = (
        "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-02T13:00:17 DUE TO TIME LIMIT ***"
    )
    log.write_text("\n".join([*lines, end]) + "\n")
    answer = triage.triage([log])
    assert (answer.root_error_class, answer.culprit_ranks) == ("Hang", (2,))
    assert answer.cause_id == "conditional_collective"


def test_rules_name_conditions_and_ways_that_exist():
    for rule in (*RULES, SLOW):
        assert rule.when is None or rule.when in CONDITIONS
        assert rule.culprits in CULPRITS
        assert rule.cause.endswith(".")
        assert rule.next_step.endswith(".")


def test_no_rule_is_dead(tmp_path):
    met = {triage.triage([log]).cause_id for log in LOGS.glob("*.log")}
    met |= {*ON_ALL.values(), *ON_SOME.values(), "cancelled", "exit_without_message"}
    met |= {"launcher_refused", "cut_tracebacks"}
    met |= {"segmentation_fault", "gpu_hardware_error"}
    assert {rule.cause_id for rule in RULES} <= met
