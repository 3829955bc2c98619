"""How fast is a large trace read, and how much memory does it take?

    python tests/bench/bench_profile.py [--megabytes 200]

The trace is made as torch.profiler makes them, with stacks of Python functions, operators, launches
and kernels. Each way of reading runs in a process of its own, three times, and the median is told:
`allhands.profile.read`, and `json.load`, which holds everything at once, for comparison. "Peak" is
by how much the largest resident memory of the process grows while it reads.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from allhands import profile

REPEATS = 3
KERNELS = (
    "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>>",
    "volta_sgemm_128x64_nn",
)


def write_trace(path: Path, megabytes: float) -> None:
    """Steps of 40 layers, until the file is that large."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100"}],')
        file.write(' "traceEvents": [\n{"ph": "M", "name": "process_name", "pid": 1}')
        external = 0
        while file.tell() < megabytes * 1e6:
            for layer in range(40):
                external += 1
                ts = external * 50.0
                common = {"ph": "X", "pid": 1, "tid": 1}
                args = {"External id": external, "correlation": external}
                inputs = {"Input Dims": [[256, 512], [512, 512]], "Input type": ["c10::Half"] * 2}
                number = {"Sequence number": external, "Fwd thread id": 0}
                frames = (f"nn.Module: Layer_{layer}", "train.py(12): step", "<built-in linear>")
                rows = [
                    {**common, "cat": "python_function", "name": frame, "ts": ts, "dur": 40.0}
                    | {"args": {"Python id": external, "Python parent id": 0}}
                    for frame in frames
                ]
                operator = {**common, "cat": "cpu_op", "name": "aten::mm", "ts": ts + 1, "dur": 30}
                rows.append(operator | {"args": {"External id": external, **inputs, **number}})
                launch = {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts + 2}
                rows.append(launch | {"dur": 4.0, "args": args})
                kernel = {"ph": "X", "cat": "kernel", "name": rng.choice(KERNELS), "pid": 0}
                more = {"grid": [4, 4, 1], "block": [256, 1, 1], "stream": 7, "device": 0}
                rows.append(
                    kernel | {"tid": 7, "ts": ts + 9, "dur": 20.0, "args": {**args, **more}}
                )
                file.write("".join(",\n" + json.dumps(row) for row in rows))
        file.write("\n]}\n")


def measure(way: str, path: Path) -> None:
    """Print "bytes by which the peak grew, seconds" for one way."""
    unit = 1 if sys.platform == "darwin" else 1024
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    if way == "read":
        kept = profile.report(profile.read(path))
    else:
        with path.open(encoding="utf-8") as file:
            kept = json.load(file)
    seconds = time.process_time() - start
    assert kept
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--way", choices=["read", "load"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        measure(asked.way, asked.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, asked.megabytes)
        size = path.stat().st_size
        print(f"a trace of {size / 1e6:.0f} MB; CPU seconds")
        print(f"{'way':22}{'MB/s':>8}{'s':>8}{'peak MB':>9}{'peak / file':>12}")
        for way, name in (("read", "profile.read, report"), ("load", "json.load")):
            command = [sys.executable, __file__, "--way", way, "--file", str(path)]
            rows = [
                [float(word) for word in subprocess.check_output(command, text=True).split()]
                for _ in range(REPEATS)
            ]
            peak, seconds = (statistics.median(column) for column in zip(*rows, strict=True))
            rate = size / 1e6 / seconds
            print(f"{name:22}{rate:8.1f}{seconds:8.1f}{peak / 1e6:9.0f}{peak / size:12.2f}")


if __name__ == "__main__":
    main()
