"""How much memory does a large corpus take, as flat arrays and as lists of Python lists?

    python tests/bench/bench_corpus_memory.py                     # a million pairs, about a minute
    python tests/bench/bench_corpus_memory.py --pairs 100000

Each way runs in a process of its own, three times, and the median is told. "Peak" is by how much
the largest resident memory of the process (ru_maxrss) grows while it encodes. Lists are made of a
part of the pairs only, and compared with a store of the same part.
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from allhands.data.corpus import read_pairs
from allhands.data.store import PairStore
from allhands.data.tokens import split
from allhands.data.vocab import build_pair

REPEATS = 3


def write_corpus(path: Path, pairs: int) -> None:
    """Random sentences of 4 to 16 words out of 20,000, as long as small_parallel_enja's."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(20_000)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(pairs):
            source, target = (" ".join(rng.choices(words, k=rng.randint(4, 16))) for _ in "st")
            file.write(f"{source}\t{target}\n")


def peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(way: str, path: Path, pairs: int) -> None:
    """Print "bytes by which the peak grew, seconds, bytes of the rows" for one way."""
    vocabs = build_pair(islice(read_pairs(path), 1000), "spaces", "spaces")
    stream = islice(read_pairs(path), pairs)
    before, start = peak_bytes(), time.perf_counter()
    if way == "lists":
        kept = [
            tuple(
                v.encode(split(t, "spaces"))
                for v, t in zip(vocabs, (p.source, p.target), strict=True)
            )
            for p in stream
        ]
        n_bytes = 0
    else:
        folder = path.parent / "store" if way == "folder" else None
        kept = PairStore.encode(stream, *vocabs, "spaces", "spaces", folder=folder)
        n_bytes = kept.nbytes
    seconds = time.perf_counter() - start
    assert len(kept) == pairs
    print(peak_bytes() - before, seconds, n_bytes)


def run(way: str, path: Path, pairs: int) -> list[float]:
    """Medians of `measure` in processes of its own."""
    command = [sys.executable, __file__, "--way", way, "--file", str(path), "--pairs", str(pairs)]
    rows = [
        [float(number) for number in subprocess.check_output(command, text=True).split()]
        for _ in range(REPEATS)
    ]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--way", choices=["memory", "folder", "lists"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        measure(asked.way, asked.file, asked.pairs)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.tsv"
        write_corpus(path, asked.pairs)
        print(f"{asked.pairs:,} pairs, {path.stat().st_size / 2**20:.0f} MiB of text")
        some = max(1, asked.pairs // 5)
        results = {
            "PairStore in memory": (asked.pairs, run("memory", path, asked.pairs)),
            "PairStore in a folder": (asked.pairs, run("folder", path, asked.pairs)),
            "PairStore in memory, part": (some, run("memory", path, some)),
            "lists of lists, part": (some, run("lists", path, some)),
        }
    print(f"{'way':27}{'pairs':>11}{'peak MiB':>10}{'peak B/pair':>13}{'rows B/pair':>13}{'s':>7}")
    for name, (pairs, (peak, seconds, n_bytes)) in results.items():
        rows = f"{n_bytes / pairs:13.1f}" if n_bytes else " " * 13
        print(f"{name:27}{pairs:11,}{peak / 2**20:10.1f}{peak / pairs:13.1f}{rows}{seconds:7.1f}")
    part, lists = (results[name][1][0] for name in list(results)[2:])
    print(
        f"lists take {lists / part:.1f} times the peak of the PairStore, on the same {some:,} pairs"
    )


if __name__ == "__main__":
    main()
