"""The lab bug4: each fault shows in what can be counted, and is gone in the repaired reading."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from allhands.doctor.run_findings import diagnose
from allhands.grade.checks import bug4_slower as checks
from allhands.trace.summary import read_metrics_lines
from allhands.train import slower
from allhands.train.faults.readings import readings

N_SAMPLES, N_HELD_OUT, BATCH = 1437, 360, 64


def reading(name: str, which: str):
    return readings(f"bug4_slower:{name}").named(which)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Real runs of an epoch on two ranks: mended, and with each fault alone; and alone, mended."""
    folder = tmp_path_factory.mktemp("slower")
    programs = {"mended": slower.MENDED} | {name: slower.faulty(name) for name in slower.PARTS}
    small = {"batch_size": BATCH, "epochs": 1}
    found = slower.measure(programs, 2, folder, **small)
    found["alone"] = slower.run(slower.MENDED, 1, folder / "alone", threads=1, **small)
    found["alone, faulty"] = slower.run(
        slower.riddle(), 1, folder / "alone-faulty", threads=1, **small
    )
    return found


def of_ranks(run, name):
    return [getattr(one, name) for one in run.facts]


def test_data_not_scattered_each_rank_trains_on_all_and_an_epoch_keeps_its_steps(runs):
    assert sum(of_ranks(runs["mended"], "n_mine")) == N_SAMPLES
    assert of_ranks(runs["numbers"], "n_mine") == [N_SAMPLES, N_SAMPLES]
    assert runs["alone"].n_steps == runs["numbers"].n_steps == -(-N_SAMPLES // BATCH)
    assert runs["mended"].n_steps == -(-719 // BATCH)


def test_a_cut_batch_keeps_the_steps_and_each_costs_more_than_half(runs):
    assert of_ranks(runs["batch_of_rank"], "batch_size") == [BATCH // 2, BATCH // 2]
    assert runs["batch_of_rank"].n_steps == runs["alone"].n_steps
    assert of_ranks(runs["mended"], "batch_size") == [BATCH, BATCH]


def test_a_loader_on_rank_0_reads_for_all(runs):
    assert of_ranks(runs["load"], "n_read") == [N_SAMPLES, 0]
    assert of_ranks(runs["mended"], "n_read") == [719, 718]


def test_evaluation_on_all_ranks_takes_twice_the_work_and_prints_twice(runs):
    assert of_ranks(runs["evaluate"], "n_held_out_mine") == [N_HELD_OUT, N_HELD_OUT]
    assert of_ranks(runs["mended"], "n_held_out_mine") == [N_HELD_OUT / 2, N_HELD_OUT / 2]
    assert runs["mended"].n_lines() == [5, 0]
    assert runs["evaluate"].n_lines() == [5, 5]


def test_too_many_threads_take_the_cores_from_each_other(runs):
    cores = runs["mended"].facts[0].cores
    if cores < 2:
        pytest.skip("two ranks on one core are too many, with one thread each")
    assert sum(of_ranks(runs["mended"], "threads")) <= cores
    assert sum(of_ranks(runs["threads"], "threads")) > cores
    if cores > 8:
        pytest.skip(f"the switches were counted on few cores; this machine has {cores}")
    # On 2 cores 64 to 500 times as many, with 6 other programs at work: 1.5 leaves chance no room.
    switches = {name: sum(of_ranks(runs[name], "n_switches")) for name in ("mended", "threads")}
    assert switches["threads"] > 1.5 * switches["mended"], switches


def test_the_first_step_spoils_a_mean(runs):
    times_s = runs["mended"].times_s
    right, faulty = (reading("step_s", which)(times_s) for which in ("repaired", "faulty"))
    assert times_s[0] > 1.5 * right
    assert faulty > right


def test_steps_do_not_compare_where_samples_do(runs):
    step = SimpleNamespace(step_s=1.0, samples_per_step=64)
    both = SimpleNamespace(step_s=1.0, samples_per_step=128)
    assert reading("speed_up", "faulty")(step, both) == 1.0
    assert reading("speed_up", "repaired")(step, both) == 2.0
    assert runs["mended"].samples_per_step == 2 * runs["alone"].samples_per_step


def test_with_one_rank_no_fault_of_the_program_shows(runs):
    """But threads: there `alone` was given one."""
    right, faulty = runs["alone"], runs["alone, faulty"]
    assert faulty.n_steps == right.n_steps
    assert faulty.n_lines() == right.n_lines()
    for name in ("n_mine", "n_read", "n_held_out_mine", "batch_size", "threads"):
        assert of_ranks(faulty, name) == of_ranks(right, name)
    np.testing.assert_array_equal(*(np.load(r.folder / "parameters.npy") for r in (right, faulty)))


def test_the_mended_program_is_right_on_two_ranks(runs):
    """Each step's gradient is that of the samples of both ranks: the first loss says so."""
    first = read_metrics_lines(runs["mended"].folder / "metrics.jsonl")[0]
    assert first["n_samples"] == 2 * BATCH
    order = np.random.default_rng(0).permutation(N_SAMPLES)
    from allhands.train import slower_ranks  # imports MPI: not where ranks are started from

    images, network = slower_ranks.Images(), slower_ranks.Network(256)
    images.open()
    pixels, digits = images.read(order[: 2 * BATCH])
    loss, _ = network.loss(network.forward(pixels)[-1], digits)
    assert first["loss"] == pytest.approx(loss / (2 * BATCH), rel=1e-4)


NAMED = {
    "numbers": {"data", "steps"},
    "batch_of_rank": {"steps"},
    "load": {"loader"},
    "evaluate": {"evaluation"},
    "threads": {"threads"},
}


def always_bad(runs):
    """What is bad on two ranks of this machine, whatever the program does."""
    return {"threads"} if runs["mended"].facts[0].cores < 2 else set()


@pytest.mark.parametrize("fault", NAMED)
def test_the_doctor_names_the_cause_of_each_real_run(runs, fault):
    found = diagnose(runs[fault].folder, runs["alone"].folder)
    assert NAMED[fault] <= {one.name for one in found if one.status == "bad"}
    if fault == "batch_of_rank":
        assert "cut batch" in {one.name for one in found if one.status != "good"}
    counted = {"data", "threads", "loader", "evaluation", "work"} - NAMED[fault] - always_bad(runs)
    assert not {one.name for one in found if one.status == "bad"} & counted


def test_the_doctor_finds_no_cause_in_the_mended_run(runs):
    found = diagnose(runs["mended"].folder, runs["alone"].folder)
    bad = {one.name for one in found if one.status == "bad"}
    assert bad - always_bad(runs) <= {"speed"}  # a busy machine


def test_the_table_shows_what_the_lab_asks_for(runs):
    rows = slower.table({"alone": runs["alone"], "load": runs["load"]}).splitlines()
    titles = {row.partition("  ")[0] for row in rows}
    assert set().union(*checks.CAUSES.values()) <= titles
    assert "steps of an epoch" in titles


def test_a_function_of_a_notebook_reaches_the_ranks(tmp_path):
    def evaluate(count_right, n_images, comm):
        return comm.rank + 0.25

    run = slower.run(slower.with_(slower.MENDED, evaluate=evaluate), 1, tmp_path, batch_size=512)
    lines = read_metrics_lines(run.folder / "metrics.jsonl")
    assert {one["valid_accuracy"] for one in lines if "valid_accuracy" in one} == {0.25}
    with pytest.raises(ValueError, match="has no source"):
        slower.run(slower.with_(slower.MENDED, load=len), 1, tmp_path)


def test_one_step_in_all_has_a_time_too(tmp_path):
    run = slower.run(slower.MENDED, 1, tmp_path, threads=1, batch_size=5000, epochs=1)
    assert run.n_steps == 1
    assert run.epoch_s > 0


def test_a_run_without_a_folder_of_its_own_leaves_none(tmp_path):
    code = (
        "from allhands.train import slower\n"
        "print(slower.run(slower.MENDED, 1, threads=1, batch_size=5000, epochs=1).folder.is_dir())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "True\n"
    assert list(tmp_path.glob("allhands-slower-*")) == []


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr("sys.argv", ["slower", "--out", str(tmp_path / "file")])
    with pytest.raises(SystemExit) as ended:
        slower.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.count("\n") == 1
    assert "cannot be written (Not a directory). Give another folder." in said


def test_a_reader_that_has_enough_gets_a_sentence(tmp_path):
    code = (
        "from allhands.train import slower\n"
        f"with slower.sentences('slower', {str(tmp_path)!r}): print('x' * 10**6)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.stdout.close()
    said = started.stderr.read()
    started.stderr.close()
    assert started.wait(60) == 2
    assert said == (f"slower: the output was not read to its end. The runs stay in {tmp_path}.\n")


@pytest.mark.parametrize("asked", [["--ranks", "0"], ["--batch", "0"], ["--epochs", "-1"]])
def test_the_command_wants_numbers_from_1_on(asked, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["slower", *asked])
    with pytest.raises(SystemExit) as ended:
        slower.main()
    assert ended.value.code == 2
    assert "is not a whole number from 1 on" in capsys.readouterr().err
