"""Cores, memory, threads, and what the system allows a user."""

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Machine

GIB = 2**30
# Measured: `mpiexec -n 2` of MPICH fails on 24 open files, and runs on 32.
FEWEST_FILES, ENOUGH_FILES = 32, 1024
FEWEST_PROCESSES = 512  # JupyterLab, its kernels, ranks and their threads


def hardware(machine: Machine) -> list[Finding]:
    cores, memory = machine.cores(), machine.memory_bytes() / GIB
    findings = [Finding("cores", "good", str(cores))]
    if cores == 1:
        advice = "Two ranks share one core: everything runs, but no speed-up can be measured."
        findings = [Finding("cores", "warn", "1", advice)]
    seen = f"{memory:.1f} GiB free"
    if memory < 2:
        findings.append(Finding("memory", "warn", seen, "Close other programs: a lab takes 2 GiB."))
    else:
        findings.append(Finding("memory", "good", seen))
    return findings


def threads(machine: Machine) -> list[Finding]:
    """Ranks and threads share the cores: one thread a rank is fastest for the labs' models."""
    value, cores = machine.environ.get("OMP_NUM_THREADS"), machine.cores()
    if value == "1" or cores == 1:
        return [Finding("threads", "good", f"OMP_NUM_THREADS={value}" if value else "one core")]
    seen = f"OMP_NUM_THREADS={value}" if value else f"OMP_NUM_THREADS unset: all {cores} cores"
    each = f"{value} threads" if value else f"all {cores} cores"
    advice = f"Each rank would take {each}. Before you start ranks: export OMP_NUM_THREADS=1"
    return [Finding("threads", "warn", seen, advice)]


def files(machine: Machine) -> list[Finding]:
    """How many files a process may have open; sockets count too."""
    soft, hard = machine.limit("nofile")
    if soft is None or soft >= ENOUGH_FILES:
        return [Finding("open files", "good", "no limit" if soft is None else f"up to {soft:,}")]
    seen = f"at most {soft:,} (hard limit: {'none' if hard is None else f'{hard:,}'})"
    advice = "JupyterLab and many ranks need more: ulimit -n 4096"
    if hard is not None and hard < 4096:
        advice = (
            "The hard limit is too low: start a new login, or ask who runs this machine "
            "(/etc/security/limits.conf; containers: --ulimit nofile=4096)."
        )
    if soft < FEWEST_FILES:
        return [Finding("open files", "bad", seen, advice, blocks="cpu")]
    return [Finding("open files", "warn", seen, advice)]


def processes(machine: Machine) -> list[Finding]:
    """How many processes and threads may be started: the user's limit, and the group's."""
    allowed, _ = machine.limit("nproc")
    limit, used = (
        machine.text(f"/sys/fs/cgroup/pids.{name}").strip() for name in ("max", "current")
    )
    if limit.isdigit() and used.isdigit():
        left = int(limit) - int(used)
        allowed = left if allowed is None else min(allowed, left)
    if allowed is None or allowed >= FEWEST_PROCESSES:
        seen = "no limit" if allowed is None else f"up to {allowed:,}"
        return [Finding("processes", "good", seen)]
    advice = "End programs of yours, or raise it: ulimit -u 4096; containers: --pids-limit=4096"
    return [Finding("processes", "warn", f"at most {allowed:,}", advice)]
