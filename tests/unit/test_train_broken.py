"""Damaged folders and corpora, a full disk, two processes: a sentence that names what is wrong."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from allhands import config as configs
from allhands.data.corpus import CorpusError, Pair
from allhands.train import run, snapshot
from allhands.train.translator import Translator

QUIET = Console(quiet=True)
DAMAGED = {"empty": lambda whole: b"", "cut": lambda whole: whole[: len(whole) // 2]}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> configs.TrainConfig:
    corpus = tmp_path_factory.mktemp("corpus") / "digits.tsv"
    corpus.write_text("one\t1\ntwo\t2\nthree\t3\nfour five\t45\n", encoding="utf-8")
    settings = ["n_embed=4", "n_hidden=4", "batch_size=2", "epochs=2", "snapshot_every=1"]
    files = [f"{split}={corpus}" for split in ("train", "valid", "test")]
    return configs.override(configs.lab1_cpu(), [*settings, *files])


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory) -> Path:
    """A finished run of four updates."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run.train(config, folder, console=QUIET).n_updates == 4
    return folder


@pytest.fixture
def finished(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def unfinished(finished) -> Path:
    """The same folder, as if it had been killed before its end."""
    (finished / "result.json").unlink()
    (finished / "model.npz").unlink()
    return finished


def resume(config, folder: Path) -> run.Result:
    return run.train(config, folder, resume=True, console=QUIET)


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_snapshot_is_named_by_resume_and_by_translate(config, unfinished, how):
    path = unfinished / "snapshot_iter_4"
    path.write_bytes(DAMAGED[how](path.read_bytes()))
    with pytest.raises(ValueError, match=r"Cannot read .*snapshot_iter_4.*Remove that file"):
        resume(config, unfinished)
    with pytest.raises(ValueError, match=r"Cannot read .*snapshot_iter_4.*Remove that file"):
        Translator.load(unfinished)
    path.unlink()  # as the sentence says
    assert Translator.load(unfinished)
    assert resume(config, unfinished).finished


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_model_is_named_by_translate(finished, how):
    path = finished / "model.npz"
    path.write_bytes(DAMAGED[how](path.read_bytes()))
    with pytest.raises(ValueError, match=r"Cannot read .*model\.npz"):
        Translator.load(finished)


@pytest.mark.parametrize("name", ["source.vocab", "target.vocab"])
def test_a_vocabulary_cut_short_does_not_cost_the_snapshot(config, unfinished, name):
    lines = (unfinished / name).read_text().splitlines(keepends=True)
    (unfinished / name).write_text("".join(lines[:-1]))
    for go_on in (lambda: resume(config, unfinished), lambda: Translator.load(unfinished)):
        with pytest.raises(ValueError, match=r"source\.vocab or target\.vocab") as raised:
            go_on()
        assert "Remove" not in str(raised.value)
    (unfinished / name).write_text("".join(lines))  # as the sentence says
    assert resume(config, unfinished).finished


@pytest.mark.parametrize("line", ['{"a":1}', "[1]", '{"update": 1, "lo'])
def test_a_broken_line_of_metrics_is_named_by_resume(config, unfinished, line):
    path = unfinished / "metrics.jsonl"
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1 is not a line of metrics"):
        resume(config, unfinished)


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"n_updates": "many"}'])
def test_a_broken_result_is_named_and_may_be_made_anew(config, finished, text):
    (finished / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result\.json is not the result of a run\. Remove it"):
        resume(config, finished)
    (finished / "result.json").unlink()  # as the sentence says
    assert resume(config, finished).n_updates == 4


def test_a_run_without_its_config_is_not_written_over(config, unfinished):
    (unfinished / "config.json").unlink()
    before = (unfinished / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"snapshot_iter_4 of a run whose config\.json is missing"):
        run.train(config, unfinished, console=QUIET)
    assert (unfinished / "metrics.jsonl").read_bytes() == before
    vocab = (unfinished / "source.vocab").read_bytes()
    resume(configs.override(config, ["train=numbers_dates/valid"]), unfinished)
    assert (unfinished / "source.vocab").read_bytes() == vocab


def test_a_run_without_its_config_goes_on_with_its_settings(config, unfinished):
    (unfinished / "config.json").unlink()
    assert resume(config, unfinished).finished  # as the sentence says


def test_a_folder_has_one_process_at_a_time(config, unfinished):
    before = {path.name: path.read_bytes() for path in unfinished.iterdir()}
    with open(unfinished / "lock", "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="Another process is training in"):
            resume(config, unfinished)
        assert {path.name: path.read_bytes() for path in unfinished.iterdir()} == before
    assert resume(config, unfinished).finished


def test_a_folder_is_free_again_after_a_run_that_failed(config, unfinished):
    (unfinished / "snapshot_iter_4").write_bytes(b"")
    with pytest.raises(ValueError, match="Cannot read"):
        resume(config, unfinished)
    with open(unfinished / "lock", "a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_full_disk_keeps_the_old_file_and_leaves_no_half_of_a_new_one(
    whole, tmp_path, monkeypatch
):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = Translator.load(whole).model
    path = tmp_path / "model.npz"
    snapshot.write_npz(path, model)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"model\.npz cannot be written: No space left on device"):
        snapshot.write_npz(path, model)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["model.npz"]


def test_text_that_finds_no_room_keeps_the_old_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "result.json"
    snapshot.write_text(path, "old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"result\.json cannot be written: No space left on device"):
        snapshot.write_text(path, "new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_a_disk_that_is_full_ends_a_run_in_a_sentence(config, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"snapshot_iter_1 cannot be written: No space left"):
        run.train(config, tmp_path / "run", console=QUIET)
    assert "OSError" in (tmp_path / "run" / "log").read_text()


def test_the_log_counts_the_pairs_that_the_length_filter_left_out(whole, config, tmp_path):
    lines = ["one\t1", "two\t2", "one two three four\t1234", "\t5"]
    (tmp_path / "few.tsv").write_text("\n".join(lines) + "\n")
    few = configs.override(config, [f"train={tmp_path / 'few.tsv'}", "max_length=3", "epochs=1"])
    run.train(few, tmp_path / "run", console=QUIET)
    assert "2 training pairs are left out" in (tmp_path / "run" / "log").read_text()
    assert "left out" not in (whole / "log").read_text()


@pytest.mark.parametrize("part", ["valid", "test"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "nope.tsv"),
        ("one\t1\ntwo\n", "nope.tsv, line 2: expected source TAB target"),
        ("one\t\n\t2\n", "No pair of .*nope.tsv has text on both sides"),
    ],
)
def test_held_out_pairs_are_read_before_the_training(config, tmp_path, part, text, sentence):
    if text is not None:
        (tmp_path / "nope.tsv").write_text(text)
    wrong = configs.override(config, [f"{part}={tmp_path / 'nope.tsv'}", "evaluate_pairs=1"])
    with pytest.raises(CorpusError, match=sentence):
        run.train(wrong, tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_model_spoilt_by_its_last_update_leaves_no_result(config, tmp_path):
    """One update alone: its loss is taken before the parameters are spoilt."""
    settings = ["learning_rate=1e38", "last_learning_rate=1e38", "epochs=1", "batch_size=100"]
    wild = configs.override(config, settings)
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"The loss on held-out pairs became (nan|inf)"),
    ):
        run.train(wild, tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run" / "result.json").exists()
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_an_evaluation_needs_a_pair_with_two_sides(whole):
    with pytest.raises(ValueError, match="at least one pair with text on both sides"):
        Translator.load(whole).evaluate([Pair("one", " ", "x:1")])
