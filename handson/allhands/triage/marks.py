"""What do launchers, schedulers and libraries say about a rank, in one line?

A table of patterns. `kind` is what the line means; the named groups say whom it is about: rank,
ranks ("0-3,5"), local, pid, node, code, signal. A line may bear several marks.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """A pattern and what it means; `word` is a plain text without which it cannot match."""

    kind: str
    word: str
    pattern: re.Pattern


@dataclass(slots=True)
class Note:
    """A mark found: where, and whom it is about."""

    kind: str
    file: int
    number: int
    text: str
    rank: int | None = None  # who wrote the line
    about: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> int | None:
        """A group as a number."""
        value = self.about.get(name)
        return int(value[:18]) if value is not None else None


def _mark(kind: str, word: str, pattern: str) -> Mark:
    return Mark(kind, word, re.compile(pattern))


MARKS = (
    # Open MPI, PRRTE
    _mark("abort", "MPI_ABORT", r"MPI_ABORT was invoked on rank (?P<rank>\d{1,5})"),
    _mark("abort", "MPI_Abort", r"Calling MPI_Abort|MPI_Abort\(.*\) (?:called|was called)"),
    _mark("hook", "Uncaught exc", r"Uncaught exception on rank (?P<rank>\d{1,5})"),
    _mark(
        "waiting_hook",  # of this course: train/excepthook.py
        "will be aborted",
        r"Rank (?P<rank>\d{1,5}) of (?P<size>\d{1,5}) raised (?P<error>[\w.]+); "
        r"the job will be aborted in (?P<wait>[\d.]+) s",
    ),
    _mark("aborted", "help message", r"(?P<code>\d+) more process(?:es)? (?:has|have) sent help"),
    _mark(
        "signal",
        "exited on signal",
        r"process rank (?P<rank>\d{1,5}) with PID (?P<pid>\d+) on node (?P<node>\S+) "
        r"exited on signal (?P<signal>\d+)",
    ),
    _mark(
        "noticed",
        "exited on",
        r"process rank (?P<rank>\d{1,5}) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on\s*$",
    ),
    _mark("noticed_signal", "signal ", r"^\s*signal (?P<signal>\d+) \("),
    _mark("first_exit", "Process name", r"Process name: \[[\w.-]+@\d+,\s*(?P<rank>\d{1,5})\]"),
    _mark("first_exit", "Process name", r"Process name: \[\[\d+,\d+\],\s*(?P<rank>\d{1,5})\]"),
    _mark("first_exit", "Process name", r"Process name: (?P<rank>\d{1,5})$"),
    _mark("first_exit", "has exited due", r"exited due to process rank (?P<rank>\d{1,5})"),
    _mark("ended", "Primary job", r"Primary job +terminated normally"),
    _mark("ended", "noticed that", r"(?:mpiexec|mpirun|prterun) (?:noticed|detected) that"),
    _mark("ended", "non-zero", r"exited with non-zero (?:status|exit)|a non-zero exit code"),
    _mark("segv", "Signal: ", r"\[(?P<node>[\w.-]+):(?P<pid>\d+)\].*Signal: .*\((?P<signal>\d+)\)"),
    _mark("crash", "received signal", r"\[(?P<node>[\w.-]+):(?P<pid>\d+)\] \*\*\* Process rec"),
    _mark("segv", "Fatal Python", r"Fatal Python error: (?:Segmentation|Bus|Aborted|Illegal)"),
    _mark("segv", "SIGSEGV", r"(?:Program received signal|forrtl: severe \(174\):) ?SIGSEGV"),
    _mark("assertion", "Assertion ", r"\w: .*:\d+: .*Assertion [`'\"].* failed"),
    # MPICH and its relatives
    _mark("bad_end", "BAD TERMINATION", r"BAD TERMINATION OF ONE OF YOUR APPLICATION"),
    _mark("bad_pid", "RUNNING AT", r"PID (?P<pid>\d+) RUNNING AT (?P<node>\S+)"),
    _mark("bad_code", "EXIT CODE", r"EXIT CODE: (?P<code>\d+)"),
    _mark("cancelled", "EXIT STRING", r"EXIT STRING: (?:Terminated|Interrupt) \(signal (?:15|2)\)"),
    _mark("bad_signal", "EXIT STRING", r"EXIT STRING: .*\(signal (?P<signal>\d+)\)"),
    _mark("bad_signal", "KILLED BY SIGNAL", r"KILLED BY SIGNAL: (?P<signal>\d+)"),
    _mark("bad_pid", "RANK ", r"RANK (?P<rank>\d{1,5}) PID (?P<pid>\d+)"),
    _mark("mpich_abort", "Abort(", r"Abort\((?P<code>-?\d+)\) on node (?P<rank>\d{1,5})"),
    _mark("mpich_abort", "application called", r"application called MPI_Abort"),
    # launchers that start nothing
    _mark("not_started", "unrecognized arg", r"unrecognized argument"),
    _mark("not_started", "unable to", r"(?:mpiexec|mpirun|prterun|srun\S*|execvp)\b.* unable to"),
    _mark("not_started", "not enough slots", r"There are not enough slots available"),
    _mark("not_started", "nable to ", r"srun: error: Unable to|Unable to allocate resources"),
    _mark("not_started", "No such file", r"execv\w*(?:\(\))?: .*No such file"),
    # Slurm, PBS, kernel
    _mark(
        "task_exit",
        "srun: error",
        r"error: (?P<node>\S+): tasks? (?P<ranks>[\d,\[\]-]+): (?P<how>.*)",
    ),
    _mark(
        "step_abort", "srun: ", r"Job step aborted|Terminating (?:StepId|job step)|forcing job term"
    ),
    _mark("time_limit", "TIME LIMIT", r"DUE TO TIME LIMIT"),
    _mark("time_limit", "walltime", r"walltime \S+ exceed|exceeded (?:its )?walltime"),
    _mark("time_limit", "TERM_RUNLIMIT", r"TERM_RUNLIMIT"),
    _mark("cancelled", "CANCELLED AT", r"(?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED AT"),
    _mark("oom_kill", "oom", r"(?:oom[_-]kill|OOM[- ][Kk]ill)"),
    _mark("oom_kill", "Out Of Memory", r"Out Of Memory"),
    _mark("oom_kill", "OOM Killed", r"OOM Killed"),
    _mark("oom_kill", "Killed process", r"Killed process (?P<pid>\d+)"),
    _mark("oom_kill", "mem ", r"PBS: job killed: (?:mem|vmem|ncpus)"),
    # torchrun, DeepSpeed, horovodrun, spawn
    _mark("sigterm", "closing signal", r"Sending process (?P<pid>\d+) closing signal"),
    _mark(
        "failed",
        "exitcode: ",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d{1,5}) "
        r"\(pid: (?P<pid>\d+)\)",
    ),
    _mark("table", "Root Cause", r"Root Cause \(first observed failure\)"),
    _mark(
        "table_rank", "rank  ", r"^\s+rank +: (?P<rank>\d{1,5}) \(local_rank: (?P<local>\d{1,5})\)"
    ),
    _mark("table_host", "host  ", r"^\s+host +: (?P<node>\S+)"),
    _mark("table_code", "exitcode ", r"^\s+exitcode +: (?P<code>-?\d+) +\(pid: (?P<pid>\d+)\)"),
    _mark("ended", "ChildFailedError", r"ChildFailedError"),
    _mark("sigterm", "via signal", r"Terminating process (?P<pid>\d+) via signal"),
    _mark("sigterm", "Killing subproc", r"Killing subprocess (?P<pid>\d+)"),
    _mark("ended", "return code", r"exits with return code = (?P<code>-?\d+)"),
    _mark(
        "process_exit",
        "exit with status",
        r"Process (?P<rank>\d{1,5}) exit with status code "
        r"(?P<code>\d+)",
    ),
    _mark("sigterm", "remaining workers", r"Terminating remaining workers"),
    # libraries
    _mark("stall", "missing ranks", r"missing ranks: ?(?P<ranks>[\d, ]+)"),
    _mark("stall_text", "Stalled ranks", r"Stalled ranks:"),
    _mark("stall_text", "subset of ranks", r"submitted to be reduced, gathered or broadcasted by"),
    _mark("stall_rank", ": [", r"^(?P<ranks>\d+): \[[\w. ,/-]+\]?"),
    _mark(
        "watchdog",
        "Watchdog caught",
        r"\[Rank (?P<rank>\d{1,5})\] Watchdog caught collective operation timeout: "
        r"WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)",
    ),
    _mark(
        "last_work",
        "last enqueued",
        r"last enqueued (?:NCCL )?work: (?P<enqueued>\d+), last "
        r"completed (?:NCCL )?work: (?P<completed>\d+)",
    ),
    _mark("barrier", "failed to pass monitored", r"[Rr]anks? (?P<ranks>[\d, ]+) failed to pass"),
    _mark("xid", "Xid", r"NVRM: Xid|Xid \("),
    _mark("bootstrap", "Bootstrap : Using", r"Bootstrap : Using (?:\[\d+\])?(?P<net>[\w.-]+?):"),
    _mark("singleton", "of 1", r"\brank 0 of 1\b"),
    _mark("singleton", "COMM_WORLD): 1", r"\(COMM_WORLD\): 1\s*$"),
    _mark("singleton", "0/1", r"\b[Rr]ank 0/1\b"),
    _mark("singletons", "singletons", r"(?P<code>\d+) singletons will be started"),
    _mark(
        "nccl_rank",
        "nranks",
        r"(?P<node>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO .*\brank (?P<rank>\d{1,5}) nranks",
    ),
    _mark(
        "grader",
        "imeout",
        r"Timeout waiting for (?:execute reply|IOPub)|CellTimeoutError: |TimeoutError: Cell exec",
    ),
    _mark("grader", "timed out", r"Cell execution timed out|cell timed out while"),
    # good ends
    _mark("good_exit", "exit", r"^exit(?:[ _]?(?:code|status))?\s*[=:]\s*0\s*$"),
    _mark("bad_exit", "exit", r"^exit(?:[ _]?(?:code|status))?\s*[=:]\s*[1-9]\d*\s*$"),
    _mark("finished", "finish", r"(?i:(?:training|job|run|all) finished|finished (?:normally|ok))"),
    # which process is which rank
    _mark("pid", "pid", r"\bpid[ =:]+(?P<pid>\d+)"),
    _mark("pid", "PID", r"\bPID[ =:]+(?P<pid>\d+)"),
    _mark(
        "nccl", " NCCL ", r"(?P<node>[\w.-]+):(?P<pid>\d+):\d+ \[(?P<local>\d{1,5})\] .*?NCCL \w+"
    ),
    _mark(
        "on_node", " on ", r"\brank (?P<rank>\d{1,5})\b.{0,20} on (?P<node>[a-z][\w-]*\d[\w-]*)\b"
    ),
    _mark("on_node", "rank ", r"^rank (?P<rank>\d{1,5}) (?P<node>[a-z][\w-]*\d+) "),
)
WORLDS = (
    r"\(COMM_WORLD\): (\d+)",
    r"world[ _-]?size[\"']?[ =:]+(\d+)",
    r"\b[Rr]ank \d+ ?(?:/|of) ?(\d+)",
    r"^\+? ?.*\b(?:mpiexec|mpirun|srun|horovodrun|prterun|nbgrader)\b.*? "
    r"(?:-n|-np|--np|-c|--ntasks)[ =](\d+)",
    r"num_processes[=: ]+(\d+)",
    r"Launching training on (\d+) (?:GPU|CPU|proc)",
    r"\b(\d+) (?:ranks|procs|processes|singletons)\b",
    r"nproc[ _]per[ _]node[ =](\d+)",
    r"\bstart \d+/(\d+)",
    r"nranks (\d+)",
)
WORLD = tuple(re.compile(pattern) for pattern in WORLDS)
PER_NODE = re.compile(r"--nproc[_-]per[_-]node[ =](\d{1,3})\b")
NODES = re.compile(r"--nnodes[ =](\d{1,3})\b")
PROGRESS = re.compile(
    r"\bepoch[ :=]*\[?(?P<epoch>\d+)|\b(?:steps?|iter(?:ation)?|it|batch|chunk)[ :=#]*\[?"
    r"(?P<step>\d+)(?:/(?P<of>\d+))?",
    re.IGNORECASE,
)
GOING_ON = re.compile(
    r"\b(?:retry|retrying|retried|recovered|continu\w+|skipping|falling back|ok|saved|done"
    r"|finished)\b",
    re.IGNORECASE,
)
TRIGGER = re.compile(
    "|".join(sorted({re.escape(mark.word.strip()) for mark in MARKS}, key=len, reverse=True))
)
WORLD_TRIGGER = re.compile(
    r"COMM_WORLD|world|[Rr]ank|mpi|srun|horovodrun|prterun|num_proc|Launching|proc|singletons|start"
    r"|nranks"
)


def marks_of(text: str) -> list[tuple[str, dict[str, str]]]:
    """The kinds of all marks in a line, with the groups that matched."""
    if TRIGGER.search(text) is None:
        return []
    found = []
    for mark in MARKS:
        if mark.word in text and (match := mark.pattern.search(text)):
            groups = {k: v for k, v in match.groupdict().items() if v is not None}
            found.append((mark.kind, groups))
    return found


def world_sizes(text: str) -> list[int]:
    """Numbers of ranks that a line speaks of."""
    if WORLD_TRIGGER.search(text) is None:
        return []
    sizes = [int(m[1]) for pattern in WORLD if (m := pattern.search(text)) and len(m[1]) < 6]
    per_node, nodes = PER_NODE.search(text), NODES.search(text)
    if per_node and nodes:
        sizes = [int(per_node[1]) * int(nodes[1])]
    return [size for size in sizes if size > 0]


def numbers(ranges: str) -> list[int]:
    """`0-3,5` as [0, 1, 2, 3, 5]; numbers that no rank has are left out."""
    found: list[int] = []
    for first, last in re.findall(r"\b(\d{1,5})(?:-(\d{1,5}))?\b", ranges):
        found += range(int(first), int(last or first) + 1)
    return found


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 3, 5] as `0-3, 5`; two neighbours as `0, 1`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
    return ", ".join(said)
