"""Causes outside the program: ports, memory, network, environment, grader; and number formats."""

from allhands.triage.rule import rule

SYSTEM = (
    rule(
        "port_in_use",
        "Another program, or a leftover of an earlier run, already listens on the port. No rank "
        "was at fault.",
        "torchrun --standalone, or another --master_port. Look for leftovers: ss -ltnp.",
        message=r"EADDRINUSE|[Aa]ddress already in use|errno: ?98|Errno 98",
        depends=False,
        culprits="none_if_agent",
    ),
    rule(
        "shm_too_small",
        "/dev/shm is full or too small on the node of ranks {ranks}: NCCL and data loaders keep "
        "shared memory there (containers give 64 MB).",
        "df -h /dev/shm on every node of the job. Container: --shm-size=1g or --ipc=host. As a "
        "test: NCCL_SHM_DISABLE=1, num_workers=0; remove leftovers in /dev/shm.",
        message=r"/dev/shm|shared memory|insufficient shm|Bus error",
        kinds=("exception", "secondary", "signal"),
        depends="some",
    ),
    rule(
        "shm_too_small",
        "A shared memory segment could not be made on the node of ranks {ranks}: /dev/shm is full "
        "or too small.",
        "df -h /dev/shm on every node of the job. Container: --shm-size=1g or --ipc=host. As a "
        "test: NCCL_SHM_DISABLE=1.",
        message=r"nccl|No space left|Errno 28|errno: ?28|\(28\)|DataLoader worker|bus error",
        anywhere=r"/dev/shm/|shared memory (?:segment|file)|shm_open|insufficient shared memory",
        depends="some",
    ),
    rule(
        "disk_full",
        "The disk (or the quota) of ranks {ranks} is full.",
        "df -h and quota on the node of the rank; write less, or somewhere else.",
        message=r"Errno 28|No space left|Errno 122|quota exceeded",
    ),
    rule(
        "wrong_network_interface",
        "The ranks of one node talk over an interface that the others cannot reach (docker0, lo, "
        "or another name). Ranks {culprits} are there; the others are victims.",
        "Compare the lines 'Bootstrap : Using' of all ranks (NCCL_DEBUG=INFO). Set "
        "NCCL_SOCKET_IFNAME to the right names (eno1,eth0) or exclude (^lo,docker0). Two ranks on "
        "one node work; two nodes do not.",
        message=r"nccl|socket|connect|No route to host|timed out|gloo|refused",
        when="odd_network",
        depends=True,
        culprits="odd_network",
    ),
    rule(
        "wrong_network_interface",
        "Ranks {ranks} cannot reach their peers over the network interface that was chosen.",
        "NCCL_DEBUG=INFO, and compare 'Bootstrap : Using' of all ranks; set NCCL_SOCKET_IFNAME "
        "(or GLOO_SOCKET_IFNAME). Two ranks on one node, then on two.",
        message=r"No route to host|Network is unreachable|Call to connect .*(?:fail|refused)"
        r"|socketStartConnect|[Nn]o socket interface found|Connection refused.*(?:nccl|socket)"
        r"|(?:nccl|socket).*Connection refused",
        kinds=("exception",),
        depends="some",
    ),
    rule(
        "nccl_system_error",
        "A system call inside NCCL failed on every rank: network, open files or shared memory. The "
        "message does not say which.",
        "NCCL_DEBUG=INFO first: its WARN line before the error names the call. Then ulimit -n, df "
        "/dev/shm, NCCL_SOCKET_IFNAME. Two ranks on one node, then on two nodes.",
        message=r"NCCL_ERROR_SYSTEM_ERROR|ncclSystemError|unhandled system error",
    ),
    rule(
        "fork_after_cuda",
        "CUDA was used in the parent before the ranks were forked from it (an earlier notebook "
        "cell, or an import). Every child would fail; the first one ended the others.",
        "Restart the kernel, and touch no CUDA before the launcher "
        "(torch.cuda.is_initialized() must be False), or move the code to a script.",
        message=r"Cannot re-initialize CUDA in forked|CUDA has been initialized before",
        depends=False,
    ),
    rule(
        "env_not_activated",
        "The job runs another Python than you think: the environment was not activated in the "
        "batch shell, or not on that node.",
        "In the job script: source .../etc/profile.d/conda.sh (or module load) before activate, "
        "set -e, and `which python` before the launcher.",
        message=r"No module named|command not found|ModuleNotFoundError",
    ),
    rule(
        "library_missing",
        "A shared library is missing or does not fit: modules that were not loaded in the job.",
        "module list, ldd on the named library, inside the job and on the node of ranks {ranks}.",
        message=r"cannot open shared object file|undefined symbol|version `\S+' not found",
    ),
    rule(
        "rendezvous_failed",
        "The ranks or nodes did not find each other: MASTER_ADDR or the endpoint is not reachable "
        "from all, or fewer started than were asked for.",
        "Print MASTER_ADDR, MASTER_PORT and the host's name on every node. Use the name from "
        "scontrol show hostnames; nothing may map it to 127.0.1.1.",
        message=r"Rendezvous\w*Error|clients joined|waiting for clients|Failed to resolve"
        r"|could not be resolved|RendezvousTimeout",
    ),
    rule(
        "nbgrader_timeout",
        "The grader stopped a cell after its time limit; the cell's ranks were still at work or "
        "hung, and the interrupt that follows is a consequence.",
        "Run the notebook by hand and time the cell. Raise c.ExecutePreprocessor.timeout, keep MPI "
        "cells short, and give them a time limit of their own.",
        message=r"CellTimeout|Cell execution timed out|Timeout waiting for execute reply"
        r"|Timeout waiting for (?:IOPub|kernel)|DeadKernel|cell timed out",
        depends=False,
    ),
)
NUMBERS = (
    rule(
        "amp_scale_collapse",
        "Every step overflows in half precision, so the loss scale was halved to its minimum: a "
        "loss or gradient is inf or NaN. Numbers, not ranks.",
        "One GPU, fp32 or bf16, 20 steps: is the loss finite? Then data, learning rate, softmax "
        "and loss in fp32. One overflow now and then is normal.",
        message=r"loss scale already at minimum|[Mm]inimum loss scale reached|loss_scale.* minimum",
    ),
    rule(
        "grad_scaler_misuse",
        "The loss scaler is called in another order than it expects.",
        "One process. Keep the weights in fp32 with autocast; per step: scale, backward, unscale_ "
        "once, clip, step, update.",
        message=r"unscale_\(\) has already been called|No inf checks were recorded"
        r"|Attempting to unscale FP16",
    ),
    rule(
        "dtype_mismatch",
        "Two number formats meet in one operation.",
        "One process. Print the dtype of the input and of the layer's weights; keep batch "
        "normalisation in fp32.",
        message=r"expected scalar type \w+ but found|Input type .* and (?:weight|bias) type"
        r"|must have the same dtype",
    ),
)
