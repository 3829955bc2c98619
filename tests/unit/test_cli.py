"""The command line: exit codes, and a sentence for everything that the user can mend."""

import errno
import json

import pytest
from typer.testing import CliRunner

from allhands.cli import app
from allhands.cli import cores as cli_cores
from allhands.trace.events import Event, write_events
from allhands.train.compare import Comparison


@pytest.fixture
def allhands():
    def call(*words: str, code: int = 0):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, result.output
        return result

    return call


TINY = [
    f"--set={setting}"
    for setting in (
        *("n_embed=4", "n_hidden=4", "batch_size=400", "epochs=1", "evaluate_pairs=4"),
        *("max_length=30", "test=numbers_dates/valid"),
    )
]


def test_help_names_every_command(allhands):
    text = allhands("--help").output
    for command in ("train", "translate", "summary", "doctor", "grade", "plan", "lab"):
        assert command in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "lab7"], "There is no preset 'lab7'"),
        (["train", "lab1_cpu", "--set", "colour=red"], "There is no setting 'colour'"),
        (["train", "lab1_cpu", "--set", "epochs=none"], "epochs takes a value of type int"),
        (["train", "lab1_cpu", "--out", ""], "--out names the run's folder, and it is empty"),
        (["train", "lab1_cpu", "--set", "test=nope.tsv"], "nope.tsv"),
        (["train", "lab1_cpu", "--resume"], "--resume needs the run's folder"),
        (["train", "lab1_cpu", "--stop-after", "-1"], "--stop-after takes seconds greater than 0"),
        (["train", "lab1_cpu", "--set", "train=nothing.tsv"], "nothing.tsv"),
        (["train", "lab1_cpu", "--ranks", "2"], "lab1_cpu is a run on 1 rank here, and 2 came up"),
        (["train", "lab2_cpu", "--set", "communicator=flat"], "no communicator 'flat' here"),
        (["translate", "no/such/run", "one"], "There is no run folder no/such/run"),
        (["summary", "no/such/run"], "no/such/run/metrics.jsonl cannot be read: No such file"),
        (["train", "lab2_cpu", "--ranks", "99999"], "--ranks 99999 asks for 99999 processes on"),
        (["compare", "lab2_cpu", "--ranks", "99999"], "more than 16 a core are not started"),
        (["grade", "no/such/notebook.ipynb"], "no/such/notebook.ipynb"),
        (["plan", "none.csv", "--startup-s=1", "--s-per-byte=1"], "none.csv cannot be read"),
        (["lab", "lab99"], "There is no lab 'lab99'"),
    ],
)
def test_what_cannot_be_done_gets_one_sentence_and_code_2(allhands, words, sentence):
    result = allhands(*words, code=2)
    said = result.stderr.strip().splitlines()
    assert len(said) == 1
    assert sentence in said[0]


def test_of_several_ranks_one_says_what_is_wrong(allhands, monkeypatch):
    """lab1_cpu under `mpiexec -n 2`: both end with 2, and rank 0 says why."""
    monkeypatch.setenv("PMI_SIZE", "2")
    for rank, sentence in (("0", "a run on 1 rank here, and 2 came up"), ("1", "")):
        monkeypatch.setenv("PMI_RANK", rank)
        said = allhands("train", "lab1_cpu", code=2).stderr
        assert sentence in said if sentence else said == ""


def test_train_stops_with_85_and_resumes_to_0(allhands, tmp_path):
    out = f"--out={tmp_path / 'run'}"
    allhands("train", "lab1_cpu", out, *TINY, "--stop-after=0.001", code=85)
    allhands("train", "lab1_cpu", out, *TINY, code=2)  # the folder holds a run
    allhands("train", "lab1_cpu", out, *TINY, "--resume")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["n_updates"] == 20
    assert allhands("translate", str(tmp_path / "run"), "twenty", "thirty").output.count("\n") == 2
    assert allhands("translate", str(tmp_path / "run"), "").output == "\n"
    assert "backward" in allhands("summary", str(tmp_path / "run")).output


def test_an_interrupt_gives_the_whole_command_to_go_on(allhands, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("allhands.train.run.train", interrupted)
    words = ("--out=a b", "--resume", "--set=seed=3", "--stop-after=60", "--device=@numpy")
    said = allhands("train", "lab1_cpu", *words, code=130).output
    assert said.splitlines()[-1] == (
        "Interrupted. To go on: allhands train lab1_cpu '--out=a b' --resume --stop-after=60 "
        "--set=seed=3 --set=device=@numpy"
    )


def test_too_little_memory_gets_a_sentence(allhands, monkeypatch):
    def too_large(*_, **__):
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr("allhands.train.run.train", too_large)
    said = allhands("train", "lab1_cpu", code=2).stderr
    assert "memory of this machine or its GPU is not enough (Unable to allocate 8 TiB)" in said


def test_a_reader_that_has_enough_ends_a_translation_quietly(allhands, monkeypatch):
    def enough(*_):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("allhands.train.translator.Translator.load", enough)
    assert allhands("translate", "run", "one", code=1).output == ""


def test_summary_adds_up_what_the_events_say(allhands, tmp_path):
    write_events(
        tmp_path / "events.rank0.jsonl", [Event(0, 3, 0, "forward"), Event(3, 4, 0, "wait")]
    )
    (tmp_path / "metrics.jsonl").write_text("")
    text = allhands("summary", str(tmp_path)).output
    assert "75.0%" in text


def three_gradients(tmp_path) -> str:
    """The case in which the published rule loses: ready at 0, 4, 9 s; 4, 1 and 1 bytes."""
    path = tmp_path / "trace.csv"
    path.write_text("arrival_index,n_bytes,backward_s\n0,4,0\n1,1,4\n2,1,5\n")
    return str(path)


def test_plan_prints_every_strategy_as_json(allhands, tmp_path):
    link = ("--startup-s=5", "--s-per-byte=1", "--forward-s=0", "--json")
    answers = json.loads(allhands("plan", three_gradients(tmp_path), *link).stdout)
    by_name = {answer["name"]: answer for answer in answers}
    assert by_name["MG-WFBP"] == {
        "name": "MG-WFBP",
        "finish_s": 20.0,
        "groups": [[0, 1], [2, 2]],
    }
    assert by_name["optimum"]["finish_s"] == 16.0
    assert by_name["optimum"]["groups"] == [[0, 0], [1, 2]]


def test_plan_says_in_words_what_to_do(allhands, tmp_path):
    link = ("--startup-s=5", "--s-per-byte=1", "--forward-s=0")
    text = allhands("plan", three_gradients(tmp_path), *link).stdout
    assert "MG-WFBP's published rule is not enough here" in text


def test_lab_lists_the_manifest(allhands):
    assert "lab1_seq2seq" in allhands("lab").output
    told = allhands("lab", "lab1_seq2seq").output
    assert "masked_loss" in told
    for command in (
        "notebooks/lab1_seq2seq.ipynb",
        "handson/lab1_seq2seq/README.md",
        "allhands train lab1_real",
        "cluster_jobs/submit lab1_seq2seq",
    ):
        assert command in told


@pytest.mark.parametrize(
    ("ranks", "cores", "said"),
    [
        (1, 1, ""),
        (3, 2, ""),
        (4, 2, "4 ranks on 2 cores take turns: correct, but no faster.\n"),
        (16, 1, "16 ranks on 1 core take turns: correct, but no faster.\n"),
    ],
)
def test_ranks_that_take_turns_are_told_so(ranks, cores, said, monkeypatch, capsys):
    monkeypatch.setattr("allhands.doctor.machine.Machine.cores", lambda _: cores)
    cli_cores.fit(ranks)
    assert capsys.readouterr().err == said


def test_more_than_16_ranks_a_core_are_refused(monkeypatch):
    monkeypatch.setattr("allhands.doctor.machine.Machine.cores", lambda _: 2)
    cli_cores.fit(32)
    with pytest.raises(ValueError, match=r"99 processes on 2 cores.*Give --ranks 2, or at most 32"):
        cli_cores.fit(99)


def test_compare_takes_two_ranks_and_says_that_one_shows_little(allhands, monkeypatch):
    asked = []

    def equal(target, ranks, **_):
        asked.append(ranks)
        return Comparison(target, ranks, ())

    monkeypatch.setattr("allhands.train.compare.compare", equal)
    assert "shows little" not in allhands("compare", "lab2_cpu").stderr
    assert "One rank shows little" in allhands("compare", "lab2_cpu", "--ranks=1").stderr
    assert asked == [2, 1]
