"""Do all notebooks hold on this machine, at the level that it has? The CI for GPU nodes.

    python -m allhands.kit.verify                          # report in build/verify
    python -m allhands.kit.verify lab1_seq2seq --level gpu --out /tmp/report
    cluster_jobs/submit notebooks --wait                   # the same as a job

For each lab: the solved notebook runs cell by cell, and its stored outputs are compared (nbval);
then it is graded. At level gpu (ALLHANDS_LEVEL=gpu in all that is started) each lab's presets for
GPUs train for one epoch (`GPU_STEPS`), and the tests marked `gpu` run. Without a GPU the report
says that the GPU level was not run.

Exit codes: 0 all that was asked for is right; 1 something is not, or was not done before
--stop-after; 2 refused: level gpu without a GPU, or no such lab.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

from allhands.grade import source
from allhands.grade.notebook import Grader
from allhands.kit import tour
from allhands.kit.verify_report import Case, Part, Report, plain
from allhands.kit.verify_run import TOO_LATE, run
from allhands.labs import COURSE, Course

OUT = Path("build/verify")
PROJECT = COURSE.labs_file.parents[1]
CELL_TIMEOUT_S = 600
VERSIONS = ("allhands", "chainer", "numpy", "cupy-cuda12x", "torch", "mpi4py", "mpich")

# Asked in a process of its own: who has opened a GPU keeps a part of it.
ASK_TORCH = """
import torch
print("CUDA of PyTorch:", torch.version.cuda or "none: a build for the CPU")
for n in range(torch.cuda.device_count()):
    gpu = torch.cuda.get_device_properties(n)
    print(f"GPU {n}: {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {gpu.major}.{gpu.minor}")
"""
ASK_DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Step:
    """A command of a lab that needs GPUs. `{run}` in it is a folder of its own."""

    lab: str
    what: str
    words: tuple[str, ...]
    n_gpus: int = 1


def _trains(lab: str, preset: str, *more: str, n_gpus: int = 1) -> Step:
    words = ("-m", "allhands.cli", "train", preset, "--out", "{run}", "--set", "epochs=1", *more)
    ranks = f", {more[-1]} ranks" if "--ranks" in more else ""
    return Step(lab, f"trains {preset}{ranks}".replace(" 1 ranks", " 1 rank"), words, n_gpus)


GPU_STEPS = (
    _trains("lab1_seq2seq", "lab1_gpu"),
    _trains("lab2_dataparallel", "lab2_gpu", "--ranks", "1"),
    _trains("lab2_dataparallel", "lab2_gpu", "--ranks", "2", n_gpus=2),
    _trains("lab3_mixedprec", "lab3_gpu"),
    _trains("lab3_mixedprec", "lab3_gpu_fp32"),
    Step(
        "lab3_mixedprec",
        "gpu_level.py",
        ("handson/lab3_mixedprec/gpu_level.py", "--out", "{run}", "--seconds", "180"),
    ),
)


# ---- this machine ----


def told_by(words: list[str] | tuple[str, ...]) -> list[str]:
    """The lines that a command prints; none if it is not there or fails."""
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def machine() -> tuple[dict[str, str], list[str]]:
    """Facts about this machine, by name; and its GPUs, a line for each."""
    lines = told_by([sys.executable, "-c", ASK_TORCH])
    gpus = [line.partition(": ")[2] for line in lines if line.startswith("GPU ")]
    versions = [f"{name} {found}" for name in VERSIONS if (found := _version(name))]
    facts = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": f"{platform.node()}: {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
        "GPUs": "; ".join(gpus) or "none",
        "driver": next(iter(told_by(ASK_DRIVER)), "none"),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }
    facts |= dict([line.split(": ", 1)]) if (line := next(iter(lines), "")) else {}
    return facts, gpus


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def level_here(asked: str, gpus: list[str]) -> tuple[str, str]:
    """The level, and a sentence about it. `asked`: auto, cpu or gpu."""
    if asked == "gpu" or (asked == "auto" and gpus):
        return "gpu", f"Level: GPU, on {len(gpus)}: {'; '.join(gpus)}."
    why = "it was not asked for" if gpus else "PyTorch sees no GPU here"
    return "cpu", f"Level: CPU. The GPU level was not run: {why}."


# ---- the parts ----


def cells(stem: str, course: Course, folder: Path, limit_s: float) -> Part:
    """Run the solved notebook under nbval, in a folder of its own."""
    source.write(source.solved_notebook(stem, course), folder / f"{stem}.ipynb")
    return nbval(stem, folder, limit_s)


def nbval(stem: str, folder: Path, limit_s: float) -> Part:
    """Run the notebook in `folder`, and compare its stored outputs."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # not this project's
    options = ["-p", "allhands.kit.verify_kernel", "--nbval-lax"]
    options += [f"--nbval-cell-timeout={CELL_TIMEOUT_S}", str(folder)]
    return _pytest(stem, "cells (nbval)", options, folder, limit_s)


def gpu_tests(folder: Path, limit_s: float) -> Part:
    """The project's own tests that are marked `gpu`."""
    options = ["-m", "gpu", str(PROJECT / "tests")]
    return _pytest("all", "tests marked gpu", options, folder, limit_s)


def _pytest(lab: str, what: str, options: list[str], folder: Path, limit_s: float) -> Part:
    """Run pytest; its cases are those of its JUnit file, or one that says why there is none."""
    begun_s = time.monotonic()
    result = folder / "cases.xml"
    result.unlink(missing_ok=True)  # of an earlier run
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={result}", *options]
    trouble = run(words, limit_s, PROJECT if lab == "all" else folder)
    found = tuple(cases_of(ET.parse(result).getroot())) if result.exists() else ()
    known = any(case.trouble for case in found)
    if trouble and (not known or trouble.startswith(TOO_LATE)):
        found = (*found, Case("pytest", trouble=trouble))
    return Part(lab, what, found, time.monotonic() - begun_s)


def cases_of(junit: ET.Element) -> Iterator[Case]:
    """The cases of pytest's JUnit file; a cell of nbval is called by its number."""
    for case in junit.iter("testcase"):
        if not case.get("name"):  # it ran when pytest was interrupted
            continue
        bad = next(
            (case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None
        )
        skipped = case.find("skipped")
        yield Case(
            case.get("name", ""),
            float(case.get("time", 0)),
            "" if bad is None else plain(bad.text or bad.get("message", "")) or "it failed",
            "" if skipped is None else skipped.get("message", "") or "no reason was given",
        )


def grading(stem: str, grader: Grader, out: Path) -> Part:
    """Grade the solved notebook; the graded one, with its figures, is <stem>.html in `out`."""
    stop = tour.visit(grader, grader.course.lab(stem), out)
    if stop.score is None:
        return Part(stem, "exercises", (Case("grading", trouble=stop.trouble),), stop.seconds)
    found = tuple(
        Case(each.id, trouble="" if each.score >= each.max else "\n".join(each.said) or "no points")
        for each in stop.score.exercises
    )
    points = (stop.score.score, stop.score.max)
    return Part(stem, "exercises", found, stop.seconds, points, f"{stem}.html")


def step(each: Step, n_gpus: int, folder: Path, limit_s: float) -> Part:
    """Run a step, if there are GPUs enough."""
    begun_s = time.monotonic()
    if n_gpus < each.n_gpus:
        case = Case(each.what, left_out=f"it needs {each.n_gpus} GPUs, and here is {n_gpus}")
    else:
        words = [word.replace("{run}", str(folder / "run")) for word in each.words]
        case = Case(each.what, trouble=run(words, limit_s, PROJECT))
    seconds = time.monotonic() - begun_s
    return Part(each.lab, each.what, (case,), seconds, beyond=n_gpus < each.n_gpus)


# ---- all of it ----

Planned = tuple[str, Callable[[float], Part]]  # what it is; runs it, given the seconds left


def planned(
    stems: list[str], grader: Grader, out: Path, n_gpus: int, steps: tuple[Step, ...] = GPU_STEPS
) -> Iterator[Planned]:
    """All parts in their order. n_gpus: 0 for level cpu."""
    course = grader.course
    for stem in stems:
        folder = _folder(out, stem)
        yield f"{stem}: cells (nbval)", lambda s, f=folder, stem=stem: cells(stem, course, f, s)
        yield f"{stem}: exercises", lambda s, stem=stem: grading(stem, grader, out)
        for number, each in enumerate(steps if n_gpus else ()):
            if each.lab == stem:
                folder = _folder(out, f"{stem}_{number}")
                yield f"{stem}: {each.what}", lambda s, e=each, f=folder: step(e, n_gpus, f, s)
    if n_gpus:
        yield "all: tests marked gpu", lambda s: gpu_tests(_folder(out, "gpu_tests"), s)


def _folder(out: Path, name: str) -> Path:
    folder = (out / "work" / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def verify(report: Report, parts: Iterator[Planned], out: Path, stop_after_s: float) -> Report:
    """Run the parts one after the other; write the report into `out` after each."""
    end_s = time.monotonic() + stop_after_s
    waiting = list(parts)
    report.not_done = [what for what, _ in waiting]  # if the job is killed, the report says so
    report.write(out)
    for what, begin in waiting:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        part = begin(left_s)
        report.parts.append(part)
        report.not_done.remove(what)
        report.write(out)
        said = "right" if part.good else "NOT right"
        print(f"{what}: {said}, {part.n_run} ran ({part.seconds:.0f} s)", flush=True)
    return report


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.verify", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("stems", nargs="*", metavar="STEM", help="the labs (default: all)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: {OUT}")
    parser.add_argument(
        "--level",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="gpu: refuse without one; auto (default): what this machine has",
    )
    parser.add_argument(
        "--stop-after", type=float, default=6900, metavar="S", help="begin nothing after that"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, course: Course = COURSE) -> int:
    asked = read_arguments(arguments)
    unknown = [stem for stem in asked.stems if stem not in course.labs()]
    if unknown:
        known = ", ".join(course.labs())
        print(f"There is no lab {', '.join(unknown)}. There are: {known}.", file=sys.stderr)
        return 2
    facts, gpus = machine()
    level, said = level_here(asked.level, gpus)
    report = Report(facts, level, said)
    if level == "gpu" and not gpus:
        report.said = (
            "Level: none. Level gpu was asked for, and PyTorch sees no GPU here. Run it on a GPU "
            "node, or give --level cpu. Why there is none: allhands doctor"
        )
        report.write(asked.out)
        print(report.said, file=sys.stderr)
        return 2
    print(report.said, flush=True)
    os.environ["ALLHANDS_LEVEL"] = level  # kernels, ranks and tests inherit it
    with Grader(course) as grader:
        stems = asked.stems or list(course.labs())
        parts = planned(stems, grader, asked.out, len(gpus) if level == "gpu" else 0)
        verify(report, parts, asked.out, asked.stop_after)
    print((asked.out / "report.txt").read_text(encoding="utf-8"))
    print(f"The report: {asked.out / 'report.html'}")
    return 0 if report.good else 1


if __name__ == "__main__":
    raise SystemExit(main())
