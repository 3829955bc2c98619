"""Lab 3 on a GPU, in ten minutes: step times, Tensor Cores, memory, the largest batch.

    python handson/lab3_mixedprec/gpu_level.py                    # writes runs/lab3_gpu_level/
    python handson/lab3_mixedprec/gpu_level.py --rehearse         # the same on a CPU, tiny

The translator of lab 3 in PyTorch trains in FP32, TF32, mixed FP16 and BF16. Results stand in
`record.json` and `record.txt`, with date and hardware; the profiler's traces lie beside them, for
`allhands profile`. What is not begun after --seconds is left out, and the record says so.
Exit codes: 0 written; 2 there is no GPU here.
"""

import argparse
import dataclasses
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from allhands import config as configs
from allhands import profile as profiles
from allhands.data.batch import Batch, batch_of
from allhands.model.seq2seq import ModelSize
from allhands.model.seq2seq_torch import TorchSeq2Seq
from allhands.train import mixed, roofline_here
from allhands.train.build import Corpus, open_corpus


@dataclasses.dataclass(frozen=True)
class Way:
    """How to train: the type that autocast gives (None: no autocast), and TF32 in FP32 products."""

    dtype: torch.dtype | None = None
    tf32: bool = False


WAYS = {
    "FP32": Way(),
    "TF32": Way(tf32=True),
    "FP16": Way(torch.float16),
    "BF16": Way(torch.bfloat16),
}


class Training:
    """The translator on a device, trained in one way; `step` makes one update."""

    def __init__(self, way: Way, size: ModelSize, device: str) -> None:
        self._way, self._device = way, device
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = way.tf32
        self.model = TorchSeq2Seq(size, seed=0).to(device)
        trained = [param for param in self.model.parameters() if param.requires_grad]
        self._optimizer = torch.optim.Adam(trained, lr=1e-3)
        # Only FP16 needs a scale. A scaler that is switched off hands everything through.
        self._scaler = torch.amp.GradScaler(device, enabled=way.dtype == torch.float16)

    def step(self, batch: Batch) -> None:
        """One update, in which nothing is asked of the GPU that would make the CPU wait for it."""
        self._optimizer.zero_grad()
        with self._arithmetic():
            loss = self.model.loss(batch)
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _arithmetic(self) -> AbstractContextManager:
        dtype = self._way.dtype
        return nullcontext() if dtype is None else mixed.autocast(self._device, dtype)


def wait_for(device: str) -> None:
    """A GPU works behind the program's back: wait until all is done."""
    if device != "cpu":
        torch.cuda.synchronize()


def step_time_s(training: Training, batch: Batch, device: str, steps: int) -> float:
    """Median seconds a step, after three steps to warm up."""
    times_s = []
    for _ in range(steps + 3):
        wait_for(device)
        start_s = time.perf_counter()
        training.step(batch)
        wait_for(device)
        times_s.append(time.perf_counter() - start_s)
    return statistics.median(times_s[3:])


def trace_of(training: Training, batch: Batch, path: Path, device: str) -> Path:
    """Write torch.profiler's trace of three steps."""
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "cpu" else [])
    with profile(activities=kinds, record_shapes=True) as recorded:
        for _ in range(3):
            training.step(batch)
        wait_for(device)
    recorded.export_chrome_trace(str(path))
    return path


def fits(way: Way, size: ModelSize, batch: Batch, device: str) -> bool:
    """Whether two steps with this batch go through without running out of memory."""
    try:
        training = Training(way, size, device)
        for _ in range(2):
            training.step(batch)
        wait_for(device)
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        training = None
        if device != "cpu":
            torch.cuda.empty_cache()


def largest_batch(way: Way, size: ModelSize, batch_with, device: str, first: int, most: int) -> int:
    """The largest of first, 2 first, 4 first, ... sentences that fits, up to `most`; 0: none."""
    largest, tried = 0, first
    while tried <= most and fits(way, size, batch_with(tried), device):
        largest, tried = tried, 2 * tried
    return largest


def hardware(device: str) -> dict:
    """What the numbers were measured on."""
    found = {
        "date": datetime.now().isoformat(timespec="seconds"),
        "device": device,
        "machine": platform.machine(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if device != "cpu":
        gpu = torch.cuda.get_device_properties(0)
        found |= {"name": gpu.name, "memory_bytes": gpu.total_memory}
        found["compute_capability"] = f"{gpu.major}.{gpu.minor}"
        found["cudnn"] = torch.backends.cudnn.version()
    return found


class Record:
    """`record.json` and `record.txt`, written anew after every part."""

    def __init__(self, folder: Path, first: dict, seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._values, self._lines = folder, dict(first), [json.dumps(first)]
        self._end_s = time.monotonic() + seconds

    def part(self, name: str, make: Callable[[], tuple[object, str]]) -> None:
        """Do a part, if there is time, and write down its values and its sentence, or its error."""
        if time.monotonic() > self._end_s:
            values, said = None, "left out: the time was over"
        else:
            try:
                values, said = make()
            except (RuntimeError, ValueError, OSError) as error:
                values, said = {"error": str(error)}, f"failed: {error}"
        self._values[name] = values
        self._lines.append(f"{name}: {said}")
        print(self._lines[-1], flush=True)
        text = json.dumps(self._values, indent=2)
        (self.folder / "record.json").write_text(text + "\n", encoding="utf-8")
        (self.folder / "record.txt").write_text("\n".join(self._lines) + "\n", encoding="utf-8")


def measure_way(name: str, size: ModelSize, batch: Batch, device: str, steps: int):
    """Return the part `name` of the record: time of a step, and its peak memory."""
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    median_s = step_time_s(Training(WAYS[name], size, device), batch, device, steps)
    values = {"step_s": median_s, "batch_size": len(batch), "steps": steps}
    said = f"{1e3 * median_s:.2f} ms a step of {len(batch)} sentences"
    if device != "cpu":
        values["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        said += f", peak {values['peak_memory_bytes'] / 2**30:.2f} GiB"
    return values, said


def profile_way(name: str, size: ModelSize, batch: Batch, device: str, folder: Path):
    """Return a trace's part of the record: the share of Tensor Cores, as `allhands profile`."""
    training = Training(WAYS[name], size, device)
    step_time_s(training, batch, device, 1)  # libraries choose their kernels in the first steps
    path = trace_of(training, batch, folder / f"{name}.json", device)
    report = profiles.report(profiles.read(path))
    return report.as_dict(), f"{path.name}\n{report}"


def roofline(device: str) -> tuple[dict, str]:
    """Return the roofline's part of the record: this GPU's own rates, predicted and measured."""
    found = roofline_here.measure(device, ("FP32", "TF32", "BF16", "FP16"))
    return found.as_dict(), str(found)


def run(folder: Path, config: configs.TrainConfig, device: str, options) -> None:
    """Measure all parts in the order of their worth."""
    corpus: Corpus = open_corpus(config)
    vocabs = (len(corpus.source_vocab), len(corpus.target_vocab))
    size = ModelSize(*vocabs, config.n_embed, config.n_hidden)

    def batch_with(n_rows: int) -> Batch:
        return batch_of(corpus.train, [i % len(corpus.train) for i in range(n_rows)])

    def largest(name: str):
        first, most = config.batch_size, options.most
        found = largest_batch(WAYS[name], size, batch_with, device, first, most)
        return found, f"{found} sentences" + (
            " (the most that was tried)" if 2 * found > most else ""
        )

    batch = batch_with(config.batch_size)
    record = Record(folder, hardware(device), options.seconds)
    for name in WAYS:
        record.part(
            f"step {name}", lambda n=name: measure_way(n, size, batch, device, options.steps)
        )
    for name in ("FP32", "FP16", "TF32", "BF16"):
        record.part(f"profile {name}", lambda n=name: profile_way(n, size, batch, device, folder))
    for name in ("FP32", "FP16"):
        record.part(f"largest batch {name}", lambda n=name: largest(n))
    if device != "cpu":
        record.part("roofline", lambda: roofline(f"{device}:0"))
    print(f"written: {folder / 'record.json'} and {folder / 'record.txt'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/lab3_gpu_level"))
    parser.add_argument("--seconds", type=float, default=420, help="begin nothing after that")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--most", type=int, default=65536, help="largest batch to try")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with a tiny model")
    options = parser.parse_args()
    config, device = configs.lab3_gpu(), "cuda"
    if options.rehearse:
        config = dataclasses.replace(config, n_embed=8, n_hidden=8, batch_size=8)
        device, options.most = "cpu", 16
    elif not torch.cuda.is_available():
        print(
            "This part of lab 3 needs a GPU, and PyTorch sees none here. Run it on a GPU node, "
            "or give --rehearse to see on the CPU what it does.",
            file=sys.stderr,
        )
        return 2
    run(options.out, config, device, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
