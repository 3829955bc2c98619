"""The same failure in other surroundings is the same answer.

Each log of the course's facts is written again: with the labels of other launchers, with its ranks'
lines in another order, behind harmless warnings, with other ends of line and encodings, with a time
before every line, with other names. Nothing of that is a matter of the cause.
"""

import random
import re
from pathlib import Path

import pytest

from allhands import triage

FOLDER = Path(__file__).parent / "triage_logs"
FIELDS = (
    "world_size", "root_error_class", "root_ranks", "culprit_ranks", "silent_ranks",
    "duplicate_count", "rank_dependent", "cause_id",
)  # fmt: skip
WRITTEN = (
    re.compile(r"^\[1,(?P<rank>\d+)\]<(?P<stream>std\w+)>: ?(?P<text>.*)$"),
    re.compile(r"^ *(?P<rank>\d+): ?(?P<stream>)(?P<text>.*)$"),
    re.compile(r"^\[rank(?P<rank>\d+)\]: ?(?P<stream>)(?P<text>.*)$"),
)
FORMATS = {
    "Open MPI 4": "[1,{rank}]<{stream}>:{text}",
    "Open MPI 5": "[1,{rank}]<{stream}>: {text}",
    "Open MPI 5, rank": "[{rank}]<{stream}>: {text}",
    "Open MPI 5, full name": "[prterun-n7-4411@1,{rank}]<{stream}>: {text}",
    "horovodrun": "Fri Sep 25 16:52:53 2026[{rank}]<{stream}>:{text}",
    "srun -l": "{rank}: {text}",
    "MPICH -l": "[{rank}] {text}",
    "torchrun --tee": "[default{rank}]:[rank{rank}]: {text}",
}
WARNINGS = (
    "/opt/x/torch/load.py:12: FutureWarning: You are using `torch.load` with `weights_only=False`.",
    "  checkpoint = torch.load(path)",
    "E external/cuda_dnn.cc:8310] Unable to register cuDNN factory: already registered",
    "wandb: ERROR Error while calling W&B API: network error, retrying",
)
NAMES = {"kelp": "miso", "gpu-a0": "wn-10", "/scratch/lab": "/data/u", "img/s": "samples/s"}


def written(log: Path) -> list[tuple[int | None, str, str]]:
    """(rank, stream, text) of each line; [] for a log without labels."""
    lines = log.read_text(encoding="utf-8").split("\n")
    for pattern in WRITTEN:
        found = [pattern.match(line) for line in lines]
        if sum(map(bool, found)) > 0.3 * len(lines):
            return [
                (int(m["rank"]), m["stream"] or "stderr", m["text"]) if m else (None, "", line)
                for m, line in zip(found, lines, strict=True)
            ]
    return []


LOGS = [p for p in sorted(FOLDER.glob("*.log")) if p.name[0].isdigit()]
GLUED = ("07_", "37_")  # labels inside lines, which these new labels would leave there
LABELLED = [p for p in LOGS if written(p) and not p.name.startswith(GLUED)]


def relabelled(lines: list[tuple[int | None, str, str]], form: str) -> str:
    return "\n".join(
        text if rank is None else form.format(rank=rank, stream=stream, text=text)
        for rank, stream, text in lines
    )


def answer(log: Path) -> dict:
    found = triage.triage([log]).as_dict()
    return {field: found[field] for field in FIELDS}


def answer_to(folder: Path, data: bytes) -> dict:
    log = folder / "job.log"
    log.write_bytes(data)
    return answer(log)


def test_the_logs_with_labels_are_found():
    assert len(LABELLED) >= 12


@pytest.mark.parametrize("form", FORMATS)
def test_labels_of_another_launcher(form, tmp_path):
    for log in LABELLED:
        text = relabelled(written(log), FORMATS[form])
        assert answer_to(tmp_path, text.encode()) == answer(log), log.name


@pytest.mark.parametrize("seed", range(3))
def test_ranks_in_another_order(seed, tmp_path):
    """Between lines of the launcher; a rank's own lines keep their order."""
    draw = random.Random(seed)
    for log in LABELLED:
        lines, waiting = [], {}
        for line in [*written(log), (None, "", "")]:
            if line[0] is not None:
                waiting.setdefault(line[0], []).append(line)
                continue
            while waiting:
                rank = draw.choice(list(waiting))
                lines.append(waiting[rank].pop(0))
                if not waiting[rank]:
                    del waiting[rank]
            lines.append(line)
        text = relabelled(lines, FORMATS["Open MPI 5"])
        assert answer_to(tmp_path, text.encode()) == answer(log), log.name


@pytest.mark.parametrize("rank", [0, 1])
def test_harmless_warnings_of_a_rank(rank, tmp_path):
    for log in LABELLED:
        lines = [(rank, "stderr", text) for text in WARNINGS] + written(log)
        text = relabelled(lines, FORMATS["srun -l"])
        assert answer_to(tmp_path, text.encode()) == answer(log), log.name


STAMP = "2026-11-29T16:48:56.123456Z "
SURROUNDINGS = {
    "warnings before": lambda text: "\n".join([*WARNINGS, text]).encode(),
    "ends of line": lambda text: text.replace("\n", "\r\n").encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "a time before every line": lambda text: (STAMP + text.replace("\n", f"\n{STAMP}")).encode(),
    "other names": lambda text: re.sub("|".join(NAMES), lambda m: NAMES[m[0]], text).encode(),
}


@pytest.mark.parametrize("change", SURROUNDINGS)
def test_other_surroundings(change, tmp_path):
    for log in LOGS:
        data = SURROUNDINGS[change](log.read_text(encoding="utf-8"))
        assert answer_to(tmp_path, data) == answer(log), log.name
