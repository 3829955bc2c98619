"""Lab 2: checks refuse likely mistakes with the sentence meant for them; the seeded faults show."""

import chainermn
import pytest

from allhands.grade.desk import Desk
from allhands.labs import COURSE
from allhands.trace.events import Event
from allhands.trace.scaling import Measured
from allhands.train.compare import compare_all
from allhands.train.on_ranks import on_ranks


@pytest.fixture
def desk() -> Desk:
    return Desk("lab2_dataparallel")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- speed-up ------------------------------------------------------------------------------------


def world(ranks, mode, per_s, batch_size=64):
    step_s = ranks * batch_size / per_s
    return Measured(ranks, mode, batch_size, (per_s,), (step_s,), (0.0,), (0.1,))


def test_speedup_refuses_step_times_percent_swapped_modes_and_seconds(desk):
    weak = [world(1, "weak", 1000.0), world(2, "weak", 1900.0)]
    strong = [world(1, "strong", 1000.0), world(2, "strong", 1300.0, 32)]
    events = [Event(0.0, 0.9, 0, "backward"), Event(0.9, 1.2, 0, "communicate")]
    right = {"weak": 1.9, "strong": 1.3, "efficiency": 0.65, "communicate": 0.25}
    assert desk.check("speedup", right, weak, strong, events).full
    for changes, sentence in (
        ({"weak": 1.3, "strong": 1.9}, "weak and strong have changed places"),
        ({"weak": 0.95}, "that is the efficiency"),
        ({"strong": 1 / 1.3}, "two ranks / one, not one / two"),
        ({"efficiency": 65.0}, "give a share, not percent"),
        ({"efficiency": 0.95}, "that is the efficiency of weak scaling"),
        ({"efficiency": 1.3}, "that is the speed-up; divide by 2"),
        ({"communicate": 25.0}, "give a share, not percent"),
        ({"communicate": 0.3}, "that is in seconds"),
    ):
        refused(desk.check("speedup", {**right, **changes}, weak, strong, events), sentence)
    refused(desk.check("speedup", {"weak": 1.9}, weak, strong, events), "a dict with the keys")
    refused(
        desk.check("speedup", {**right, "efficiency": None}, weak, strong, events),
        "a number for each key. Seen: 'efficiency'",
    )


@pytest.mark.parametrize(("id", "right"), [("strong", "b"), ("bucket", "c"), ("rate", "d")])
def test_each_wrong_choice_has_a_sentence_of_its_own(desk, id, right):
    wrong = [letter for letter in "abcd" if letter != right]
    assert len({desk.check(id, letter).said for letter in wrong}) == 3
    assert not any(desk.check(id, letter).full for letter in wrong)
    assert desk.check(id, right).full


# --- the bench -----------------------------------------------------------------------------------

BENCH = COURSE.labs_file.parent / "lab2_dataparallel" / "my_parallel.py"
BREAKS = {  # what the bench's README proposes, and what differs first
    "as it is": ("", "", None),
    "own seed": ("[SEED, number]", "[SEED + comm.rank, number]", "samples"),
    "no weight": ("return weight * model.loss", "return model.loss", "gradient"),
    "no sums": ("comm.allreduce_obj(counts[name])", "counts[name]", "counts"),
}


def test_the_bench_s_program_gives_one_answer_and_each_break_is_found(tmp_path):
    source = BENCH.read_text(encoding="utf-8")
    paths = []
    for number, (old, new, _) in enumerate(BREAKS.values()):
        assert old in source
        paths.append(tmp_path / f"program{number}.py")
        paths[-1].write_text(source.replace(old, new) if old else source, encoding="utf-8")
    found = [one.first_difference for one in compare_all(paths, ranks=3, time_limit_s=200)]
    assert found == [stage for _, _, stage in BREAKS.values()]


# --- what the text says, and the tool that the checks stand on -----------------------------------


def shards_of_five(comm):
    return list(chainermn.scatter_dataset(list(range(5)), comm))


def test_scatter_dataset_gives_a_sample_to_two_ranks_as_the_notebook_says():
    assert on_ranks(shards_of_five, ranks=2, chainermn=True) == [[0, 1, 2], [2, 3, 4]]


def speaks_and_fails(comm):
    print("before")
    if comm.rank == 1:
        raise KeyError("no such word")
    comm.Barrier()


def test_on_ranks_quotes_the_line_that_failed():
    with pytest.raises(Exception, match=r"rank 1 raised KeyError: 'no such word'") as caught:
        on_ranks(speaks_and_fails, ranks=2)
    assert '`raise KeyError("no such word")`' in str(caught.value)


def test_on_ranks_prints_what_each_rank_said_and_returns_its_result(capsys):
    with pytest.raises(ValueError, match="has no source"):
        on_ranks(print, ranks=2)
    assert on_ranks(tells_its_rank, ranks=2) == [1, 2]
    assert capsys.readouterr().out == "[0] rank 0\n[1] rank 1\n"


def tells_its_rank(comm):
    print(f"rank {comm.rank}")
    return comm.rank + 1
