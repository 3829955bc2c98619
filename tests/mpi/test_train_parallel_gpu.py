"""Data-parallel training over NCCL: only where there is a GPU; one rank is enough to see it run."""

import json
import math

import pytest

from allhands import launch
from allhands.trace.summary import read_metrics

TINY = ["n_embed=16", "n_hidden=32", "epochs=1", "evaluate_pairs=20"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "setting", ["precision=fp32", "double_buffering=true", "allreduce_dtype=float16"]
)
def test_the_gpu_preset_trains_over_nccl(tmp_path, setting):
    words = [word for one in (*TINY, setting) for word in ("--set", one)]
    folder = tmp_path / "run"
    command = ["train", "lab2_gpu", "--out", folder, *words]
    launch.mpirun("allhands.cli", *command, ranks=1, time_limit_s=240)
    assert json.loads((folder / "result.json").read_text())["device"].startswith("@cupy")
    losses = read_metrics(folder).losses
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
