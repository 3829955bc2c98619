"""How fast does triage read a large log, and in how much memory?

    python tests/bench/bench_triage.py [MEGABYTES]

Writes a log of progress lines of 8 ranks with a few tracebacks in a temporary folder, and one that
is harder (every line has other words), reads each in a process of its own, and prints MB/s and the
peak memory of that process for a tenth of the size and for the whole. The claims: at least 50 MB/s,
and the same memory for ten times the log.
"""

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 90, in <module>',
    "    main()",
    '  File "train.py", line 61, in main',
    "    loss = net(batch)",
    "ValueError: Array device must be same as the current device: array device = 0 while "
    "current = {rank}",
)
READ = """
import resource, sys, time
from pathlib import Path
from allhands.triage import triage
path = Path(sys.argv[1])
start_s, start_cpu_s = time.perf_counter(), time.process_time()
answer = triage([path])
spent_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
size_mb = path.stat().st_size / 1e6
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(f"{size_mb:.0f} MB: {size_mb / spent_s:.0f} MB/s ({size_mb / cpu_s:.0f} by CPU time), "
      f"peak {peak_mb:.0f} MB, "
      f"{answer.cause_id} on ranks {list(answer.root_ranks)}")
"""


def progress(seed: int) -> Iterator[str]:
    """Lines of 8 ranks that only count."""
    draw = random.Random(seed)
    step = 0
    while True:
        step += 1
        for rank in range(8):
            loss = draw.random()
            yield f"[1,{rank}]<stdout>:epoch {step // 900} step {step} loss {loss:.4f} 612 img/s"


def words(seed: int) -> Iterator[str]:
    """Lines of 8 ranks with names that never repeat."""
    draw = random.Random(seed)
    while True:
        name = "".join(draw.choices("abcdefghijklmnop", k=12))
        yield f"[1,{draw.randrange(8)}]<stdout>:read tile {name} of {draw.random():.3f} MB, kept"


def write(path: Path, lines: Iterator[str], size_bytes: int) -> None:
    """A log of about `size_bytes`, with a traceback of ranks 1 to 7 at its end."""
    with path.open("w") as file:
        written = 0
        while written < size_bytes:
            block = "\n".join(next(lines) for _ in range(2000)) + "\n"
            written += file.write(block)
        for rank in range(1, 8):
            for line in TRACEBACK:
                file.write(f"[1,{rank}]<stderr>:{line.format(rank=rank)}\n")
        file.write("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n")


def main() -> None:
    size_mb = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as folder:
        for name, make, share in (("progress", progress, 1.0), ("words", words, 1.0)):
            for part in (0.1, 1.0):
                path = Path(folder) / f"{name}.log"
                write(path, make(1), int(size_mb * 1e6 * share * part))
                print(f"{name:9s}", end=" ", flush=True)
                subprocess.run([sys.executable, "-c", READ, str(path)], check=True)


if __name__ == "__main__":
    main()
