"""Data-parallel training on real ranks: as one rank would, resumed exactly, stopped together."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from allhands import launch
from allhands.trace.events import read_events
from allhands.trace.summary import read_metrics
from allhands.train import snapshot

PROGRAM = Path(__file__).with_name("parallel_ranks.py")
RANKS = 2
N_PAIRS = 97  # two unequal shares: 49 pairs in 7 batches of 8, the last of 1, and 48 in 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Digits in English words, and as digits."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    random = np.random.RandomState(0)
    path = tmp_path_factory.mktemp("corpus") / "digits.tsv"
    rows = [random.randint(10, size=random.randint(1, 6)) for _ in range(N_PAIRS)]
    lines = [" ".join(words[d] for d in row) + "\t" + "".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory, corpus) -> Path:
    """One world that compares, trains a whole run, and stops another."""
    folder = tmp_path_factory.mktemp("two")
    program("compare+train-whole+stop-resumed", folder, corpus)
    return folder


def program(what: str, folder: Path, corpus: Path) -> launch.Finished:
    return launch.mpirun(PROGRAM, what, folder, corpus, ranks=RANKS, time_limit_s=120)


def left(folder: Path, what: str) -> list[dict]:
    return [json.loads((folder / f"{what}.rank{r}.json").read_text()) for r in range(RANKS)]


@pytest.fixture(scope="module")
def compared(folder) -> list[dict]:
    return left(folder, "compare")


def test_every_pair_comes_once_an_epoch_in_as_many_steps_on_each_rank(compared):
    batches = [rank["batches"] for rank in compared]
    assert [len(of_rank) for of_rank in batches] == [7, 7]
    seen = [number for of_rank in batches for batch in of_rank for number in batch]
    assert sorted(seen) == list(range(N_PAIRS))


def test_the_averaged_gradient_is_that_of_all_pairs_of_the_step(compared):
    """In a step of equal batches, and in one of unequal ones. Sums differ in their last bits."""
    assert compared[0]["mean"] == compared[1]["mean"]
    for mean, union in zip(compared[0]["mean"], compared[0]["union"], strict=True):
        np.testing.assert_allclose(mean, union, rtol=1e-4, atol=1e-5)


def test_a_rank_without_a_pair_adds_nothing(compared):
    assert compared[1]["none"] == 0.0
    assert compared[0]["none"] > 0.0


def test_the_broadcast_is_done_before_the_first_step(compared):
    assert [rank["t"] for rank in compared] == [0, 0]


def test_a_shared_evaluation_is_that_of_one_rank(compared):
    ours, theirs = compared[0]["evaluation"], compared[0]["alone"]
    assert compared[1]["evaluation"] == ours
    assert ours == pytest.approx(theirs, rel=1e-5)
    for name in ("n_sentences", "n_tokens", "exact_match", "bleu", "chrf"):
        assert ours[name] == theirs[name]


def test_a_run_leaves_one_set_of_files_and_the_events_of_each_rank(folder):
    names = {path.name for path in (folder / "whole").iterdir()}
    wanted = {"config.json", "metrics.jsonl", "model.npz", "result.json", "log", "lock"}
    wanted |= {"source.vocab", "target.vocab", "events.rank0.jsonl", "events.rank1.jsonl"}
    wanted |= {"facts.rank0.json", "facts.rank1.json"}
    assert names == wanted | {"snapshot_iter_8", "snapshot_iter_12"}
    assert json.loads((folder / "whole/config.json").read_text())["ranks"] == RANKS
    assert json.loads((folder / "whole/result.json").read_text())["n_updates"] == 14
    assert left(folder, "train-whole")[1]["n_updates"] == 14


def test_the_all_reduce_of_each_step_is_an_event_of_its_own(folder):
    """On a common clock: nobody leaves it before all have entered."""
    by_rank = [
        {event.step: event for event in read_events(path) if is_all_reduce(event)}
        for path in sorted((folder / "whole").glob("events.rank*.jsonl"))
    ]
    for step in range(1, 15):
        both = [events[step] for events in by_rank]
        assert max(event.start_s for event in both) <= min(event.end_s for event in both)
    assert [len(events) for events in by_rank] == [14, 14]


def is_all_reduce(event) -> bool:
    return (event.what, event.name) == ("communicate", "all")


def test_one_ranks_clock_stops_all_after_the_same_update(folder):
    ended = left(folder, "stop-resumed")
    assert [one["n_updates"] for one in ended] == [5, 5]
    assert not any(one["finished"] for one in ended)
    assert {one["reason"] for one in ended} == {"the time given by --stop-after is over"}
    assert snapshot.find(folder / "resumed")[-1].name == "snapshot_iter_5"


def test_a_killed_rank_leaves_a_run_that_goes_on_exactly(folder, corpus, tmp_path):
    """Signal 9 after update 9: the snapshot of update 8 is good. So is that of a stopped run."""
    with pytest.raises(launch.RanksFailed, match="rank 1 was killed by signal 9"):
        program("kill-killed", tmp_path, corpus)
    assert snapshot.find(tmp_path / "killed")[-1].name == "snapshot_iter_8"
    (folder / "resumed").rename(tmp_path / "resumed")
    program("train-killed+train-resumed", tmp_path, corpus)
    for name in ("killed", "resumed"):
        assert_same_run(tmp_path / name, folder / "whole")


def assert_same_run(folder: Path, other: Path) -> None:
    """Same losses and evaluations bit for bit, same parameters."""
    ours, theirs = read_metrics(folder), read_metrics(other)
    assert ours.losses == theirs.losses
    assert ours.evaluations == theirs.evaluations
    with np.load(folder / "model.npz") as mine, np.load(other / "model.npz") as wanted:
        assert set(mine.files) == set(wanted.files)
        for name in wanted.files:
            np.testing.assert_array_equal(mine[name], wanted[name])


def test_ctrl_c_saves_on_all_ranks_and_more_ranks_cannot_go_on(tmp_path, corpus):
    """`allhands train --ranks 2` from a terminal: exit code 130, and a snapshot."""
    command = [str(Path(sys.executable).parent / "allhands"), "train", "lab2_cpu"]
    command += ["--out", str(tmp_path / "run")]
    settings = ["n_embed=4", "n_hidden=4", "batch_size=8", "epochs=10000", "evaluate_every=1"]
    settings += [f"{part}={corpus}" for part in ("train", "valid", "test")]
    words = [word for setting in settings for word in ("--set", setting)]
    run = subprocess.Popen(
        [*command, "--ranks", "2", *words], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert any("validation" in line for line in run.stdout)
    run.send_signal(signal.SIGINT)
    said = run.stdout.read()
    assert run.wait() == 130
    assert "and saved: signal SIGINT" in said
    assert re.search(r"To go on: allhands train lab2_cpu .*--resume .*--ranks=2", said)
    assert snapshot.find(tmp_path / "run")
    more = subprocess.run(
        [*command, "--resume", *words], capture_output=True, text=True, check=False
    )
    assert more.returncode == 2
    assert "holds a run on 2 ranks, and 1 came up" in more.stderr
