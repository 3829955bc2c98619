"""A run: exact resume, orderly stop, what it refuses, and what it leaves behind."""

import json
import shlex
import signal
import subprocess
import sys
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from allhands import config as configs
from allhands.data.corpus import CorpusError
from allhands.trace.events import read_events
from allhands.trace.summary import STEP_PARTS, read_metrics
from allhands.train import run, snapshot
from allhands.train.build import open_corpus
from allhands.train.stop import StopTrigger
from allhands.train.translator import Translator

QUIET = Console(quiet=True)
TINY = [
    "n_embed=8",
    "n_hidden=12",
    "batch_size=16",
    "epochs=3",
    "evaluate_every=10",
    "evaluate_pairs=8",
    "snapshot_every=7",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A hundred pairs: digits in English words, and as digits."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rng = np.random.RandomState(0)
    path = tmp_path_factory.mktemp("corpus") / "digits.tsv"
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(100):
            digits = rng.randint(10, size=rng.randint(1, 6))
            file.write(" ".join(words[d] for d in digits) + "\t" + "".join(map(str, digits)) + "\n")
    return path


@pytest.fixture(scope="module")
def config(corpus) -> configs.TrainConfig:
    files = [f"{split}={corpus}" for split in ("train", "valid", "test")]
    return configs.override(configs.lab1_cpu(), [*TINY, *files])


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory) -> Path:
    """The folder of a run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run.train(config, folder, console=QUIET).finished
    return folder


def stop_after(n_updates: int):
    """A clock that reaches the limit of 1 s when it was asked for the `n_updates`-th time."""
    ticks = count()
    return lambda: 0.0 if next(ticks) <= n_updates else 1.0


def parameters(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "model.npz") as saved:
        return {name: saved[name] for name in saved.files}


def assert_same_run(folder: Path, other: Path) -> None:
    """Same losses bit for bit, same evaluations, same parameters."""
    ours, theirs = read_metrics(folder), read_metrics(other)
    assert ours.losses == theirs.losses
    assert ours.evaluations == theirs.evaluations
    theirs_by_name = parameters(other)
    for name, array in parameters(folder).items():
        np.testing.assert_array_equal(array, theirs_by_name[name])


def test_the_folder_holds_what_a_run_says(whole, config):
    names = {path.name for path in whole.iterdir()}
    assert names >= {
        *("config.json", "source.vocab", "target.vocab", "metrics.jsonl", "events.rank0.jsonl"),
        *("model.npz", "result.json", "log", "snapshot_iter_21", "snapshot_iter_14"),
    }
    assert configs.load(whole / "config.json") == config
    assert len(read_metrics(whole).losses) == 3 * 7  # 100 pairs in batches of 16, three epochs
    assert json.loads((whole / "result.json").read_text())["n_updates"] == 21


def test_every_step_has_its_four_parts_in_order_and_without_overlap(whole):
    events = [event for event in read_events(whole / "events.rank0.jsonl") if event.step == 5]
    assert [event.what for event in sorted(events)] == list(STEP_PARTS)
    assert all(a.end_s <= b.start_s for a, b in pairwise(events))


def test_only_the_newest_two_snapshots_are_kept(whole):
    assert [path.name for path in snapshot.find(whole)] == ["snapshot_iter_14", "snapshot_iter_21"]


@pytest.mark.parametrize("n_updates", [0, 1, 5, 10, 20])
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(
    whole, config, tmp_path, n_updates
):
    stopped = run.train(
        config, tmp_path / "run", stop_after_s=1, clock=stop_after(n_updates), console=QUIET
    )
    assert (stopped.finished, stopped.n_updates) == (False, n_updates)
    assert run.train(config, tmp_path / "run", resume=True, console=QUIET).finished
    assert_same_run(tmp_path / "run", whole)


def test_events_of_a_resumed_run_go_on_in_time_and_no_step_comes_twice(config, tmp_path):
    folder = tmp_path / "run"
    run.train(config, folder, stop_after_s=1, clock=stop_after(10), console=QUIET)
    run.train(config, folder, resume=True, console=QUIET)
    events = [e for e in read_events(folder / "events.rank0.jsonl") if e.what == "backward"]
    assert [event.step for event in events] == list(range(1, 22))
    assert all(a.end_s <= b.start_s for a, b in pairwise(events))


def in_a_process(config, folder: Path, *more: str) -> subprocess.Popen:
    """`allhands train` as a process; read its output only after its end."""
    settings = [f"--set={key}={getattr(config, key)}" for key in ("train", "valid", "test")]
    command = [sys.executable, "-m", "allhands.cli", "train", "lab1_cpu", f"--out={folder}"]
    return subprocess.Popen(
        [*command, *settings, *(f"--set={setting}" for setting in TINY), *more],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_a_snapshot(folder: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not (folder.exists() and snapshot.find(folder)):
        pass


def test_a_killed_run_leaves_a_snapshot_from_which_it_goes_on(whole, config, tmp_path):
    folder = tmp_path / "run"
    process = in_a_process(config, folder, "--set=epochs=2000")
    wait_for_a_snapshot(folder, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    longer = configs.override(config, ["epochs=2000"])
    left_at = snapshot.number(snapshot.find(folder)[-1])
    resumed = run.train(
        longer, folder, resume=True, stop_after_s=1, clock=stop_after(3), console=QUIET
    )
    assert resumed.n_updates == left_at + 3
    assert [line["update"] for line in read_metrics(folder).updates] == list(range(1, left_at + 4))


def test_a_scheduler_s_signal_saves_and_ends_with_85(config, tmp_path):
    folder = tmp_path / "run"
    process = in_a_process(config, folder, "--set=epochs=2000")
    wait_for_a_snapshot(folder, process)
    process.send_signal(signal.SIGUSR1)
    assert process.wait() == 85
    newest = snapshot.number(snapshot.find(folder)[-1])
    assert newest == read_metrics(folder).updates[-1]["update"]


def test_ctrl_c_saves_and_says_the_whole_command_to_go_on(config, tmp_path):
    folder = tmp_path / "my run"
    process = in_a_process(config, folder, "--set=epochs=2000")
    wait_for_a_snapshot(folder, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[0]
    assert process.returncode == 130
    newest = snapshot.number(snapshot.find(folder)[-1])
    assert newest == read_metrics(folder).updates[-1]["update"]
    command = shlex.split(said.splitlines()[-1].removeprefix("To go on: "))
    assert command[:5] == ["allhands", "train", "lab1_cpu", f"--out={folder}", "--resume"]
    settings = [f"{key}={getattr(config, key)}" for key in ("train", "valid", "test")]
    assert command[5:] == [f"--set={one}" for one in (*settings, *TINY, "epochs=2000")]


def test_a_second_signal_ends_at_once():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop = StopTrigger(epochs=1)
    with stop.on_signals(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.raise_signal(signal.SIGINT)
        assert stop.reason == "signal SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # which ends the process
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)  # a scheduler may say it twice
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_that_stopped_before_its_first_update_does_not_say_that_it_saved(config, tmp_path):
    folder = tmp_path / "run"
    run.train(config, folder, stop_after_s=1, clock=stop_after(0), console=QUIET)
    assert not snapshot.find(folder)
    assert "nothing was saved yet" in (folder / "log").read_text()
    assert "and saved" not in (folder / "log").read_text()


def test_a_run_shorter_than_its_evaluation_interval_is_evaluated_once_at_its_end(config, tmp_path):
    short = configs.override(config, ["epochs=1", "evaluate_every=1000"])
    run.train(short, tmp_path / "run", console=QUIET)
    assert [line["update"] for line in read_metrics(tmp_path / "run").evaluations] == [7]


def test_a_broken_newest_snapshot_is_named(config, tmp_path):
    folder = tmp_path / "run"
    run.train(config, folder, stop_after_s=1, clock=stop_after(8), console=QUIET)
    (folder / "snapshot_iter_8").write_bytes(b"half of a file")
    with pytest.raises(ValueError, match=r"Cannot read .*snapshot_iter_8.*Remove that file"):
        run.train(config, folder, resume=True, console=QUIET)
    (folder / "snapshot_iter_8").unlink()
    assert run.train(config, folder, resume=True, console=QUIET).finished


def test_a_folder_with_a_run_is_not_written_over(whole, config):
    before = (whole / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"already holds a run\. Give --resume"):
        run.train(config, whole, console=QUIET)
    changed = configs.override(config, ["seed=5", "n_hidden=13"])
    with pytest.raises(ValueError, match=r"other settings .n_hidden: 12 -> 13; seed: 0 -> 5."):
        run.train(changed, whole, resume=True, console=QUIET)
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_resuming_a_finished_run_does_nothing(whole, config):
    before = (whole / "metrics.jsonl").read_bytes()
    assert run.train(config, whole, resume=True, console=QUIET).finished
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_unreadable_text_leaves_no_folder(config, tmp_path):
    missing = configs.override(config, ["train=/nowhere/pairs.tsv"])
    with pytest.raises(CorpusError, match=r"/nowhere/pairs\.tsv"):
        run.train(missing, tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_run_may_be_resumed_with_another_test_corpus(config, tmp_path):
    folder = tmp_path / "run"
    run.train(config, folder, stop_after_s=1, clock=stop_after(8), console=QUIET)
    other = configs.override(config, ["test=numbers_dates/valid"])
    assert run.train(other, folder, resume=True, console=QUIET).finished
    assert configs.load(folder / "config.json") == other


def test_a_gpu_that_is_not_there_gets_a_sentence_and_leaves_no_folder(config, tmp_path):
    from allhands.train import device

    if device.gpu_is_usable():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"asks for the GPU '@cupy:0'.*--device @numpy"):
        run.train(configs.override(config, ["device=@cupy:0"]), tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_ends_the_run_and_names_the_update(config, tmp_path):
    wild = configs.override(config, ["learning_rate=1e38", "last_learning_rate=1e38"])
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"The loss became (nan|inf) at update \d+"),
    ):
        run.train(wild, tmp_path / "run", console=QUIET)
    assert "FloatingPointError" in (tmp_path / "run" / "log").read_text()


def test_a_run_depends_on_its_seed_alone(whole, config, tmp_path):
    np.random.seed(99)  # the global generator must not matter
    run.train(config, tmp_path / "again", console=QUIET)
    assert_same_run(tmp_path / "again", whole)
    run.train(configs.override(config, ["seed=1"]), tmp_path / "other", console=QUIET)
    assert read_metrics(tmp_path / "other").losses != read_metrics(whole).losses


def test_a_translator_loads_from_a_finished_run_and_from_a_stopped_one(whole, config, tmp_path):
    texts = ["one two", "nine", "four four four"]
    finished = Translator.load(whole)
    assert len(finished.translate(texts)) == 3
    assert finished.translate(texts) == [finished.translate([text])[0] for text in texts]
    assert finished.translate(["", "nine", " "]) == ["", *finished.translate(["nine"]), ""]
    run.train(config, tmp_path / "run", stop_after_s=1, clock=stop_after(20), console=QUIET)
    stopped = Translator.load(tmp_path / "run")
    saved = {name: p.array for name, p in stopped.model.namedparams()}
    untrained = Translator.new(config, stopped.source_vocab, stopped.target_vocab).model
    assert all(not np.array_equal(p.array, saved[n]) for n, p in untrained.namedparams())


def test_a_vocabulary_rounded_up_gives_sizes_for_tensor_cores_and_only_known_tokens(config):
    padded = configs.override(config, ["vocab_multiple=64"])
    corpus = open_corpus(padded)
    translator = Translator.new(padded, corpus.source_vocab, corpus.target_vocab)
    sizes = translator.model.size
    assert (sizes.n_source, sizes.n_target) == (64, 64)
    assert len(corpus.target_vocab) < 64
    # Untrained, it says rows that stand for no token too: they come out as unknown.
    said = translator.translate(["one two", "three"])
    assert set("".join(said).replace("<unk>", "")) <= set("0123456789")


def test_a_folder_without_a_model_is_told_so(tmp_path, config):
    with pytest.raises(ValueError, match="There is no run folder"):
        Translator.load(tmp_path)
