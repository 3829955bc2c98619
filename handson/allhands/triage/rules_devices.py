"""Causes that are a matter of devices, and of ranks that differ from each other (rule.py)."""

from allhands.triage.rule import rule

DEVICES = (
    rule(
        "duplicate_gpu",
        "Several ranks of a node use the same GPU: nobody chose a device by local rank, or all "
        "are shown the same one.",
        "Print rank, local rank, CUDA_VISIBLE_DEVICES and the current device on all ranks. Choose "
        "the device by local rank before any other use of CUDA or NCCL. One process cannot show "
        "this.",
        message=r"Duplicate GPU detected",
        depends=False,
    ),
    rule(
        "invalid_device_ordinal",
        "Ranks {ranks} ask for a GPU number that their process is not shown: the launcher or "
        "CUDA_VISIBLE_DEVICES already gives each task its own GPU as number 0, or there are more "
        "ranks than GPUs.",
        "Print CUDA_VISIBLE_DEVICES and the number of devices on all ranks. Either show every task "
        "all GPUs of its node (--gpus-per-node, --gpu-bind=none), or use device 0 (local rank "
        "modulo the number of devices).",
        message=r"invalid device ordinal|cudaErrorInvalidDevice\b|invalid device id",
        depends="some",
    ),
    rule(
        "array_on_wrong_device",
        "On ranks {ranks} an array lies on another GPU than the current one: it was made or moved "
        "before the rank chose its device, so it landed on GPU 0.",
        "Print the array's device beside the current device on every rank. Choose the device in "
        "the first line of main(), and make or move all arrays after it. To see it with one "
        "process, run that one on device 1.",
        message=r"Array device must be same as the current|device where the array resides"
        r"|is not compatible with array's device",
        depends="some",
    ),
    rule(
        "tensor_on_wrong_device",
        "On ranks {ranks} a tensor stayed on another device, usually cuda:0: made with "
        "device='cuda', or kept as a plain attribute that model.to() does not move.",
        "Use register_buffer, or make it with device=x.device. Test with one process on a GPU "
        "that is not cuda:0.",
        message=r"Expected all tensors to be on the same device|but got (?:index|mat\d|weight) is "
        r"on|Expected object of (?:device|backend) type",
        depends="some",
    ),
    rule(
        "cpu_gpu_mixed",
        "Arrays of CPU and GPU meet in one operation: the model or the batch was not moved.",
        "Run one process. Move the model (to_device) and every batch to the same device.",
        message=r"incompatible array types are mixed",
    ),
    rule(
        "map_location_gpu0",
        "Other ranks keep memory on GPU 0: torch.load without map_location (the checkpoint was "
        "saved from cuda:0), or CUDA used before the device was chosen. Rank {ranks} is the "
        "victim; look at ranks {culprits}.",
        "torch.load(..., map_location='cpu' or the rank's own device), set_device before. "
        "nvidia-smi must show one process a GPU. One process that resumes works: it is not the "
        "batch size.",
        message=r"out of memory",
        when="memory_of_others",
        depends=True,
        culprits="memory",
    ),
    rule(
        "oom_one_rank",
        "Only rank {ranks} ran out of GPU memory: its batch was larger (a long sequence), or "
        "something else lives on its GPU. The others only waited for it.",
        "Print the shape of the largest batch on every rank; cap or bucket lengths, or take a "
        "smaller batch. Longer time-outs help nothing.",
        message=r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|out of memory "
        r"allocating",
        when="few",
        depends=True,
    ),
    rule(
        "oom_all_ranks",
        "The model and its batch do not fit into a GPU; every rank has the same.",
        "Run one process with the same batch: it fails there too. Halve the batch, or use mixed "
        "precision.",
        message=r"CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|out of memory "
        r"allocating",
    ),
    rule(
        "gpu_hardware_error",
        "The GPU or its driver failed on rank {ranks} (ECC, Xid, lost device): a matter of that "
        "machine, not of the program.",
        "Run the same job without that node (--exclude). Give the node's name and the line to the "
        "administrators; look for Xid in dmesg.",
        message=r"uncorrectable ECC|ECC error|fallen off the bus|\bXid\b|cudaErrorECC"
        r"|hardware error",
        depends="some",
    ),
    rule(
        "device_assert",
        "A kernel's check failed on the GPU: usually an index or a label outside its range in this "
        "rank's data.",
        "Run with CUDA_LAUNCH_BLOCKING=1, or one process on the CPU: the message then names the "
        "line. Check the labels' range.",
        message=r"device-side assert(?:ion)? (?:triggered|failed)|cudaErrorAssert",
    ),
    rule(
        "illegal_memory_access",
        "A kernel used memory that is not its own; the line shown is where it was noticed.",
        "Run with CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer on one process. If one node alone "
        "fails, exclude it.",
        message=r"illegal memory access|unspecified launch failure",
    ),
    rule(
        "no_gpu_visible",
        "The process is shown no usable GPU, or the driver does not fit the CUDA library.",
        "Run nvidia-smi and `allhands doctor` inside the job, on the node of ranks {ranks}.",
        message=r"no CUDA-capable device|No CUDA GPUs are available|driver version is insufficient",
    ),
)
MISSING = (
    r"failed to pass monitoredBarrier|did not (?:join|reach) the barrier"
    r"|retrieving ncclUniqueId from \[\d+\]"
)
RANKS_DIFFER = (
    rule(
        "conditional_collective",
        "The ranks do not make the same collective call: a branch, a missing modality or a size "
        "that depends on the rank's data. Rank {culprits} is the odd one.",
        "Make the branch the same on all ranks (use zeros for what is missing). Print the list of "
        "parameters or shapes of each rank before the call. One process has nothing to mismatch.",
        message=r"Detected mismatch between collectives|Mismatched (?:allreduce|broadcast|allgather"
        r"|ALLREDUCE|data)|MPI_ERR_TRUNCATE|[Mm]essage truncated|message sizes do not match"
        r"|Collectives differ|tag \d+ truncated|op\.preamble\.length",
        depends=True,
        culprits="minority",
    ),
    rule(
        "param_mismatch",
        "The model's parameters differ between ranks: its sizes come from the rank's own data, or "
        "some ranks freeze or add parameters. Look at rank {culprits}; who reports it only "
        "compares.",
        "Print the shapes of all named parameters on every rank. Compute sizes on rank 0 and "
        "broadcast them before the model is built.",
        message=r"Shape does not match: .* at rank|to match sizes of the same param"
        r"|to match strides of the same param|DDP expects same model across all ranks"
        r"|inconsistent \d+ params|params\[\d+\] in this process",
        depends=True,
        culprits="named_or_minority",
    ),
    rule(
        "unused_parameters",
        "On ranks {ranks} some parameters had no part in the loss: a branch that depends on the "
        "data. Which ranks fail changes from run to run.",
        "Add 0 * output.sum() of the unused head, or find_unused_parameters=True. Run again with "
        "another seed: if the failing ranks move, it is the data and not the GPU.",
        message=r"Expected to have finished reduction in the prior iteration|did not receive grad",
        depends="some",
    ),
    rule(
        "evaluator_rank0_only",
        "Rank 0 works alone (evaluation, saving) while the others already wait for it.",
        "Let all ranks evaluate (split the data, add the counts), or put a barrier after what rank "
        "0 does alone. Two ranks and a tiny validation set show it in seconds.",
        message=MISSING,
        anywhere=r"evaluat|validat|\beval\b",
        when="named_rank0",
        depends=True,
        culprits="named",
    ),
    rule(
        "rank_missing_at_barrier",
        "Rank {culprits} did not come to the barrier; the rank that says so only waited for it.",
        "Look at what rank {culprits} did last. If it works alone there (evaluation, saving), all "
        "ranks must do the same or wait in a barrier after it.",
        message=MISSING,
        depends=True,
        culprits="named",
    ),
    rule(
        "empty_shard",
        "Rank {ranks} has no data: there are fewer samples than ranks, or the split leaves one "
        "empty.",
        "Print the number of samples on every rank; give each at least one batch.",
        message=r"need at least one array to (?:stack|concatenate)|num_samples=0|empty dataset",
    ),
)
