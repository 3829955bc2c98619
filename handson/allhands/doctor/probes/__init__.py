"""Can the labs run on this machine, and if not, what is to be done?

A probe looks at a `Machine` and returns findings. It imports no heavy library: Chainer, mpi4py and
CuPy are tried in processes of their own, so that a crash or a hang there is a finding here.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from allhands.doctor.finding import Finding, at_level
from allhands.doctor.machine import Machine
from allhands.doctor.probes.devices import devices
from allhands.doctor.probes.host import files, hardware, processes, threads
from allhands.doctor.probes.jobs import inside_job, scheduler
from allhands.doctor.probes.networks import network
from allhands.doctor.probes.ranks import cuda_aware, first_mpiexec, launcher, mpi, pmi
from allhands.doctor.probes.storage import clock, scratch, shared_memory
from allhands.doctor.probes.this_python import chainer, intruder, jupyter, packages, python

__all__ = ["ASKED", "PROBES", "probe_all"]

Probe = Callable[[Machine], list[Finding]]
LONGEST_S = 120.0  # for one probe; what a probe runs has limits of its own, below this

# In the order of the report.
PROBES: tuple[Probe, ...] = (
    *(python, packages, intruder, chainer, jupyter),
    *(mpi, first_mpiexec, pmi, launcher, cuda_aware),
    *(hardware, threads, files, processes),
    *(shared_memory, scratch, clock),
    *(network, scheduler, inside_job),
    devices,
)

# What each finding answers, by its name.
ASKED = {
    "Python": "Is this Python one that the labs were tested with, in an environment of its own?",
    "packages": "Are all packages here, at the versions that the labs were tested with?",
    "chainermn": "Has the separate package chainermn overwritten the one that Chainer brings?",
    "Chainer": "Does Chainer start, and is a gradient right that is known by hand?",
    "Jupyter": "Can notebooks be opened?",
    "MPI": "Do the launcher and mpi4py's library belong together: are two ranks one world?",
    "mpiexec": "Is the mpiexec that comes first in PATH the one that fits mpi4py?",
    "PMI": "Which --mpi of srun fits the MPI library of mpi4py?",
    "launcher": "Does the site's launcher make one world of two ranks?",
    "CUDA-aware": "Can this MPI send arrays straight from GPU memory?",
    "cores": "How many cores may programs use here?",
    "memory": "How much memory is free, within the limits of a job or a container?",
    "threads": "How many threads would each rank take?",
    "open files": "How many files may a process have open?",
    "processes": "How many more processes may be started?",
    "/dev/shm": "Is there shared memory for ranks, and what have ended jobs left in it?",
    "scratch": "Can runs be written, and is there room?",
    "clock": "Do this host and its file system agree on the time?",
    "loopback": "Can programs on this host reach each other (127.0.0.1)?",
    "host name": "Does this host know the address of its own name?",
    "interfaces": "Which networks has this host, and is the one there that was chosen?",
    "ports": "Are ports free for the programs that ranks use to find each other?",
    "network": "Which names, interfaces and ports has this host?",
    "scheduler": "Is there a scheduler, and does it answer?",
    "job": "Which job is this, and what was it given?",
    "driver": "Is the GPU driver new enough for the CUDA of CuPy and PyTorch?",
    "GPU": "Are there GPUs, and does CuPy compute on them?",
    "NCCL": "Which NCCL do CuPy and PyTorch use?",
    "PyTorch": "Is PyTorch built for GPUs?",
}


def probe_all(
    machine: Machine | None = None,
    probes: Sequence[Probe] = PROBES,
    level: str = "cpu",
    longest_s: float = LONGEST_S,
) -> list[Finding]:
    """What all probes found, in their order, as it counts for a level.

    A probe that fails, or never comes back, is a finding: never a traceback, never a wait for ever.
    """
    machine = machine or Machine()
    found: dict[int, list[Finding]] = {}

    def safely(number: int, probe: Probe) -> None:
        try:
            found[number] = probe(machine)
        except Exception as error:
            seen = f"could not be looked at: {type(error).__name__}: {error}"
            advice = "Look yourself, and please tell us."
            found[number] = [Finding(probe.__name__, "warn", seen, advice)]

    # Daemons: a thread that hangs in the kernel must not keep Python from ending.
    threads_of = [
        threading.Thread(target=safely, args=item, daemon=True) for item in enumerate(probes)
    ]
    for thread in threads_of:
        thread.start()
    for number, thread in enumerate(threads_of):
        thread.join(longest_s)
        if number not in found:
            seen = f"no answer after {longest_s:.0f} s"
            advice = "Is a file system or a server gone that this host uses?"
            found[number] = [Finding(probes[number].__name__, "warn", seen, advice)]
    findings = [finding for number in range(len(probes)) for finding in found[number]]
    named = [replace(one, asked=one.asked or ASKED.get(one.name, "")) for one in findings]
    return at_level(named, level)
