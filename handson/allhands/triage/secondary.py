"""Which errors only say that something else went wrong before?

Texts and classes that a failure elsewhere leaves behind (a peer that is gone, a launcher that ends
the job). Such an error is a root only when nothing else is there.
"""

import re

from allhands.triage.blocks import Event, Raised

CLASSES = frozenset(
    {
        "ChildFailedError", "ProcessRaisedException", "ProcessExitedException",
        "CalledProcessError", "SignalException", "HorovodInternalError", "KeyboardInterrupt",
        "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "CancelledError",
    }
)  # fmt: skip
WRAPPERS = ("ExceptionGroup", "CheckpointException")
TEXTS = re.compile(
    r"Watchdog caught collective operation timeout|Some NCCL operations have failed"
    r"|ncclRemoteError|Connection closed by|Connection reset by peer|Broken pipe"
    r"|Horovod has been shut ?down|HorovodInternalError|Horovod detected that one or more"
    r"|successfully reached monitoredBarrier, but|NCCL communicator was aborted"
    r"|remote process (?:has )?exit|process exiting prematurely|Socket Timeout|recvValue failed"
    r"|failed to recv, got 0 bytes|wait timeout after|Timed out waiting \d+ms for (?:recv|send)"
    r"|exits? unexpectedly|exited unexpectedly|got signal: 15|DistStoreError"
    r"|collective operation timeout|Aborted on|MPI_ERR_PROC_FAILED|peer .* (?:died|is gone)"
    r"|(?:mpiexec|mpirun|srun|torchrun|horovodrun).* (?:exit|return)",
    re.IGNORECASE,
)
LAUNCHER_FRAMES = re.compile(
    r"bin/(?:torchrun|horovodrun|deepspeed|accelerate)$|torch/distributed/(?:run|launch)"
    r"|elastic/(?:agent|multiprocessing)|horovod/runner/"
)
HARMLESS = re.compile(r"Warning$")


def is_secondary(raised: Raised, tail: str = "") -> bool:
    """Is this exception, by its class or text, a consequence of another failure?"""
    said = f"{raised.message}\n{tail}"
    return raised.error_class in CLASSES or TEXTS.search(said) is not None


def root_of(event: Event) -> Raised | None:
    """The first exception of the event's chain that is no consequence; None if all are.

    An exception group stands for what it holds; the group itself is the root when it holds nothing.
    """
    tail = "\n".join(event.tail)
    chain = [r for r in event.chain if HARMLESS.search(r.error_class) is None]
    single = [
        r for r in chain if not r.error_class.endswith(("ExceptionGroup", "CheckpointException"))
    ]
    for raised in single or chain:
        more = "NCCL" in raised.message or raised.message.endswith(":")
        if not is_secondary(raised, tail if len(chain) == 1 and more else ""):
            return raised
    return None


def of_launcher(event: Event) -> bool:
    """Did the launcher (an agent, not a rank) raise it?"""
    return any(LAUNCHER_FRAMES.search(name) for name, _, _ in event.frames[:4])
