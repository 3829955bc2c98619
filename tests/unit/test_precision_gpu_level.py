"""Lab 3's script for a GPU: refused without one, rehearsed on a CPU, run where there is a GPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "handson" / "lab3_mixedprec" / "gpu_level.py"


def start(*options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True)


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = start("--out", str(tmp_path / "record"))
    assert done.returncode == 2
    assert "needs a GPU, and PyTorch sees none here" in done.stderr
    assert not (tmp_path / "record").exists()


def test_a_rehearsal_goes_through_all_parts(tmp_path):
    done = start("--rehearse", "--steps", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["device"] == "cpu"
    for name in ("FP32", "TF32", "FP16", "BF16"):
        assert record[f"step {name}"]["step_s"] > 0
        assert "no GPU kernel" in record[f"profile {name}"]["error"]
    assert record["largest batch FP16"] == 16
    assert "largest batch FP32: 16 sentences" in (tmp_path / "record.txt").read_text()


def test_what_is_not_begun_in_time_is_left_out_and_what_fails_is_told(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("gpu_level", SCRIPT)
    gpu_level = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu_level)

    def fail():
        raise ValueError("no such thing")

    gpu_level.Record(tmp_path, {}, seconds=-1).part("late", fail)
    assert json.loads((tmp_path / "record.json").read_text()) == {"late": None}
    assert "late: left out: the time was over" in capsys.readouterr().out
    gpu_level.Record(tmp_path, {}, seconds=60).part("broken", fail)
    assert "broken: failed: no such thing" in (tmp_path / "record.txt").read_text()


@pytest.mark.gpu
def test_on_a_gpu_fp16_runs_on_tensor_cores_and_fp32_does_not(tmp_path):
    done = start("--steps", "5", "--seconds", "120", "--most", "2048", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["profile FP16"]["tensor_core_share"] > 0.5
    assert record["profile FP32"]["tensor_core_share"] == 0
    assert record["step FP16"]["step_s"] > 0
