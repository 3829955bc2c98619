"""Disks, memory, limits and networks: each fault is named, with its cure, and nothing else is."""

from dataclasses import replace

import pytest
from sample_machines import (
    DISK,
    ETH0,
    GIB,
    HOME,
    JOB,
    LO,
    MIB,
    SHM,
    Laptop,
    on_slurm,
    only_this_is_named,
)

from allhands.doctor.machine import Folder, Interface, Network, Segment

FAULTS = {
    # what is wrong: (machine, finding, status, words of what was seen, words of the advice)
    "one core": (Laptop(cores=1), "cores", "warn", "1", "speed-up"),
    "little memory": (Laptop(memory_bytes=GIB), "memory", "warn", "1.0 GiB", "2 GiB"),
    "little disk": (
        Laptop(disk=replace(DISK, free_bytes=GIB // 2)),
        "scratch",
        "warn",
        "0.5 GiB",
        "old runs",
    ),
    "full disk": (
        Laptop(disk=replace(DISK, free_bytes=GIB // 100)),
        "scratch",
        "bad",
        "0.0 GiB",
        "old runs",
    ),
    "read-only": (
        Laptop(disk=replace(DISK, error="Read-only file system")),
        "scratch",
        "bad",
        "cannot write in",
        "folder of your own",
    ),
    "no scratch": (
        Laptop(environ={"ALLHANDS_SCRATCH": "/gone"}, missing_files={"gone"}),
        "scratch",
        "bad",
        "/gone is not there",
        "mkdir -p /gone",
    ),
    "slow disk": (Laptop(disk=replace(DISK, write_s=9.0)), "scratch", "warn", "9.0 s", "faster"),
    "a disk of one host": (
        Laptop(
            environ={"PBS_JOBID": "3", "PBS_NODEFILE": "/nodes"},
            texts={"/nodes": "n1\nn1\nn2\nn2\n"},
            network=replace(HOME, addresses=("10.0.0.7",), bindable=("10.0.0.7",)),
        ),
        "scratch",
        "warn",
        "ext4",
        "shared disk",
    ),
    "a clock that is fast": (
        Laptop(disk=replace(DISK, ahead_s=60.0)),
        "clock",
        "warn",
        "60.0 s ahead",
        "timedatectl",
    ),
    "a clock that is slow": (
        Laptop(disk=replace(DISK, ahead_s=-60.0)),
        "clock",
        "warn",
        "60.0 s behind",
        "timedatectl",
    ),
    "little shared memory": (
        Laptop(folders={"/dev/shm": replace(SHM, free_bytes=MIB, total_bytes=MIB)}),
        "/dev/shm",
        "bad",
        "1 MiB free of 1",
        "remount,size=1g",
    ),
    "shared memory that does not answer": (
        Laptop(folders={"/dev/shm": Folder(error="no answer after 8 s")}),
        "/dev/shm",
        "bad",
        "could not be looked at: no answer",
        "ls /dev/shm",
    ),
    "64 MiB of shared memory": (
        Laptop(folders={"/dev/shm": replace(SHM, free_bytes=64 * MIB)}),
        "/dev/shm",
        "warn",
        "64 MiB free",
        "--shm-size=1g",
    ),
    "left-overs of jobs": (
        Laptop(
            segments=[Segment("mpich_shm_a", 80 * MIB, False), Segment("sm_segment.b", 1, True)]
        ),
        "/dev/shm",
        "warn",
        "1 file of ended jobs (80 MiB)",
        "-name 'mpich_shm[-._]*'",
    ),
    "no shared memory": (
        Laptop(missing_files={"shm"}, texts={"/proc/version": "Linux"}),
        "/dev/shm",
        "bad",
        "not there",
        "mount -t tmpfs",
    ),
    "shared memory on a disk": (
        Laptop(folders={"/dev/shm": replace(SHM, type="ext4")}),
        "/dev/shm",
        "warn",
        "ext4",
        "tmpfs",
    ),
    "few open files": (
        Laptop(limits={"nofile": (64, 4096)}),
        "open files",
        "warn",
        "at most 64",
        "ulimit -n 4096",
    ),
    "few open files, and no more allowed": (
        Laptop(limits={"nofile": (16, 16)}),
        "open files",
        "bad",
        "hard limit: 16",
        "limits.conf",
    ),
    "few processes": (
        Laptop(limits={"nproc": (100, 100)}),
        "processes",
        "warn",
        "at most 100",
        "ulimit -u",
    ),
    "few processes in a container": (
        Laptop(
            texts={"/sys/fs/cgroup/pids.max": "64\n", "/sys/fs/cgroup/pids.current": "14\n"},
            limits={"nproc": (None, None)},
        ),
        "processes",
        "warn",
        "at most 50",
        "--pids-limit",
    ),
    "no loopback": (
        Laptop(network=replace(HOME, loopback_error="Cannot assign", bindable=())),
        "loopback",
        "bad",
        "Cannot assign",
        "ip link set lo up",
    ),
    "an unknown name": (
        Laptop(network=replace(HOME, addresses=(), bindable=(), name_error="not known")),
        "host name",
        "warn",
        "'laptop' has no address: not known",
        'echo "10.0.0.7 laptop" >> /etc/hosts',
    ),
    "another host's address": (
        Laptop(network=replace(HOME, addresses=("203.0.113.9",), bindable=())),
        "host name",
        "warn",
        "203.0.113.9, which is no address of this host",
        "10.0.0.7",
    ),
    "a name that other hosts cannot reach": (
        on_slurm(JOB, disk=replace(DISK, type="lustre")),
        "host name",
        "warn",
        "other hosts of the job",
        "/etc/hosts",
    ),
    "an interface that is not there": (
        Laptop(environ={"ALLHANDS_NETWORK": "ib7"}),
        "interfaces",
        "bad",
        "ib7 is not on this host",
        "lo, eth0",
    ),
    "an interface that is down": (
        Laptop(
            environ={"GLOO_SOCKET_IFNAME": "ib0"},
            network=replace(HOME, interfaces=(LO, ETH0, Interface("ib0", up=False))),
        ),
        "interfaces",
        "bad",
        "ib0 is down",
        "unset GLOO_SOCKET_IFNAME",
    ),
    "an interface without an address": (
        Laptop(
            environ={"NCCL_SOCKET_IFNAME": "net"},
            network=replace(HOME, interfaces=(LO, ETH0, Interface("net0"))),
        ),
        "interfaces",
        "bad",
        "has no address",
        "NCCL",
    ),
    "InfiniBand without locked memory": (
        Laptop(
            limits={"memlock": (65536, 65536)},
            network=replace(HOME, interfaces=(LO, ETH0, Interface("ib0", infiniband=True))),
        ),
        "interfaces",
        "warn",
        "at most 64 KiB",
        "ulimit -l unlimited",
    ),
    "no port": (
        Laptop(network=replace(HOME, ports_error="Address already in use")),
        "ports",
        "bad",
        "already in use",
        "ip_local_port_range",
    ),
    "no port for jobs": (
        Laptop(network=replace(HOME, range_free=0)),
        "ports",
        "warn",
        "20000",
        "MASTER_PORT",
    ),
    "a name server that is gone": (
        Laptop(network=Network(error="no answer after 8 s")),
        "network",
        "warn",
        "no answer",
        "resolv.conf",
    ),
    "threads unset": (
        Laptop(environ={"OMP_NUM_THREADS": ""}),
        "threads",
        "warn",
        "all 4 cores",
        "Each rank would take all 4 cores. Before you start ranks: export OMP_NUM_THREADS=1",
    ),
    "many threads": (
        Laptop(environ={"OMP_NUM_THREADS": "8"}),
        "threads",
        "warn",
        "OMP_NUM_THREADS=8",
        "Each rank would take 8 threads. Before you start ranks: export OMP_NUM_THREADS=1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_named_with_its_cure_and_nothing_else_is(fault):
    only_this_is_named(*fault)
