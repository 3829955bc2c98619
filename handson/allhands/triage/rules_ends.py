"""Causes of what is no exception: crashes, hangs, time limits, lost peers (rule.py)."""

from allhands.triage.rule import rule

CRASH = ("signal",)
WAITING = ("hang", "stall")
CRASHES = (
    rule(
        "mpi_not_cuda_aware",
        "A GPU pointer reached an MPI library that was built without CUDA: it copies it on the "
        "host and crashes. With one process nothing is sent, so that works.",
        "ompi_info --parsable --all | grep mpi_built_with_cuda_support:value. Run the same script "
        "with a CPU, non_cuda_aware or pure_nccl communicator: if that works, it is MPI.",
        kinds=CRASH,
        message=r"SIGSEGV",
        anywhere=r"opal_convertor|btl_(?:vader|sm|tcp)|MPI_Allreduce|ompi_coll|MPIR_|libmpi\S*\(",
        when="gpus_used",
    ),
    rule(
        "shm_too_small",
        "A bus error: a process wrote to shared memory that /dev/shm has no room for.",
        "df -h /dev/shm. Container: --shm-size=1g or --ipc=host; fewer loader workers.",
        kinds=CRASH,
        message=r"SIGBUS",
    ),
    rule(
        "host_oom_sigkill",
        "The system killed rank {ranks} (signal 9): the memory of the host was used up. There is "
        "no traceback, as the process could not write one.",
        "Look for oom_kill in sacct and dmesg, and compare MaxRSS with --mem. Run one process with "
        "the same caches and watch its memory; fewer workers, smaller caches, or more --mem.",
        kinds=CRASH,
        message=r"SIGKILL",
        depends="some",
    ),
    rule(
        "host_oom_sigkill",
        "A loader process was killed by the system: the memory of the host was used up.",
        "Compare MaxRSS with --mem; fewer loader workers, smaller caches, or more --mem.",
        message=r"killed by signal: Killed|MemoryError|Cannot allocate memory|Errno 12",
    ),
    rule(
        "gpu_hardware_error",
        "The driver reports a fault of the GPU.",
        "Run the same job without that node, and give the line to the administrators.",
        kinds=CRASH,
        message=r"Xid",
    ),
    rule(
        "segmentation_fault",
        "A native library crashed on ranks {ranks}.",
        "python -X faulthandler shows the Python line. One process, then two on one node: if one "
        "works, it is the communication layer.",
        kinds=CRASH,
        message=r"SIG(?:SEGV|ABRT|ILL|FPE|BUS)",
    ),
)
WAITS = (
    rule(
        "evaluator_rank0_only",
        "Rank 0 alone evaluates or saves while the others already wait in the next collective.",
        "Let all ranks evaluate (split the data, add the counts), or put a barrier after what rank "
        "0 does alone. Two ranks and a tiny validation set show it in seconds.",
        kinds=WAITING,
        anywhere=r"evaluat|validat|\beval\b|checkpoint|saving|save ",
        when="only_rank0",
        depends=True,
    ),
    rule(
        "uneven_inputs",
        "Rank {culprits} has fewer batches: it left the loop while the others wait for it in the "
        "collective of the next step.",
        "Print the number of batches per rank before training; drop_last=True, pad the shards, or "
        "DDP join(). Two ranks with one sample too many show it in seconds.",
        kinds=("hang",),
        when="uneven",
        depends=True,
    ),
    rule(
        "conditional_collective",
        "Rank {culprits} does not come to the collective that the others wait in.",
        "Look inside with py-spy dump --pid, or faulthandler, on rank {culprits} and one other. "
        "Print before and after each collective. TORCH_DISTRIBUTED_DEBUG=DETAIL names the call.",
        kinds=WAITING,
        depends=True,
    ),
    rule(
        "walltime_no_hang",
        "No bug: all ranks went on in step until the scheduler's time limit.",
        "Estimate seconds per epoch from the log and ask for more time, or save on a signal "
        "(#SBATCH --signal=B:USR1@120) and resume.",
        kinds=("time_limit",),
        depends=False,
    ),
    rule(
        "mpi_singletons",
        "The launcher's process manager and the MPI library do not fit: N copies of a job of one "
        "process, each rank 0 of 1. Later errors (the same file written by all) follow from it.",
        "srun --mpi=list, then srun --mpi=pmix; or the mpiexec of the same MPI that mpi4py was "
        "built with. Check: python -c 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'.",
        kinds=("singletons",),
        depends=False,
    ),
)
LAST = (
    rule(
        "cancelled",
        "Nothing failed in this log: the job was cancelled from outside.",
        "Ask who cancelled it (sacct). If it hung: py-spy dump --pid on two ranks, and compare "
        "their last lines.",
        kinds=("cancelled",),
        depends=False,
    ),
    rule(
        "launcher_refused",
        "The launcher started no rank: an option that it does not know, or resources that are not "
        "there.",
        "Read the launcher's own line. `mpiexec --version` says which MPI it belongs to; compare "
        "-n with the slots or the allocation.",
        kinds=("exit",),
        message=r"^LauncherError",
        depends=False,
    ),
    rule(
        "cut_tracebacks",
        "Every traceback ends before its last line, so the log does not say what was raised: the "
        "launcher ended the ranks while they wrote.",
        "Run again with an abort that waits 10 s, or without the except hook; or one process.",
        kinds=("exit",),
        message=r"^tracebacks that end",
    ),
    rule(
        "exit_without_message",
        "Ranks {culprits} ended with an error code, and the log holds no message: output was lost, "
        "or sits in another file.",
        "One log file per rank, python -u, and both streams; look for the ranks' own files.",
        kinds=("exit",),
    ),
    rule(
        "peer_lost",
        "Ranks {ranks} only lost a peer, or waited for it too long; what it did is not in this "
        "log. Look at ranks {culprits}.",
        "Run again with TORCH_DISTRIBUTED_DEBUG=DETAIL (NCCL_DEBUG=INFO on GPUs) and one log file "
        "per rank, and compare what each prints last.",
        kinds=("secondary",),
        culprits="silent_or_printers",
    ),
    rule(
        "exception_without_abort",
        "Rank {ranks} died with {error}, and nobody called MPI_Abort: the others waited for it "
        "until the job was ended.",
        "python -m mpi4py script.py (or an except hook that aborts), so that one failure ends the "
        "job. Then debug the {error} of rank {ranks}.",
        when="waited_for_the_dead",
        depends=True,
    ),
)
SLOW = rule(
    "slow_cpu_oversubscription",
    "No failure, but more worker processes and threads than cores: the time goes into loading "
    "data, not into communication.",
    "num_workers = cores / ranks, set OMP_NUM_THREADS, check --cpus-per-task and binding. Measure "
    "with synthetic data: if that scales, the loader is the bottleneck.",
    anywhere=r"suggested max number of worker|excessive worker creation",
)
