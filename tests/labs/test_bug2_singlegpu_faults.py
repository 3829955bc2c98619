"""Lab bug2, its faults: each shows its symptom on its rung, and the repair removes it."""

import numpy as np
import pytest

from allhands import launch
from allhands.grade.checks.bug2_singlegpu import PLAYED, _loss_of_the_union
from allhands.train import last_seen, rungs
from allhands.train.faults import __main__ as command
from allhands.train.faults import bug2_singlegpu as faults
from allhands.train.faults.readings import readings
from allhands.train.rungs import start


class Alone:
    """A communicator of one rank."""

    rank, size = 0, 1

    def allreduce(self, value):
        return value

    def Allreduce(self, sent, received):
        received[:] = sent

    def allgather(self, value):
        return [value]

    def bcast(self, value):
        return value


HANG_S, PATIENT_S = 4, 30
KINDS = {list: "differs", launch.TimeUp: "hang", launch.RanksFailed: "error"}
SYMPTOMS = {one.name: one for one in faults.SYMPTOMS}


def fails_on(program, ranks, time_limit_s=PATIENT_S) -> object:
    """What the climb to this rung alone shows: (ranks, what), or (None, None)."""
    return rungs.climb(lambda n: start(program, ranks=n, time_limit_s=time_limit_s), [ranks])


@pytest.mark.parametrize(
    "name", ["report", "count_words", "train_line", "name_labels", "begin_lazily"]
)
def test_each_fault_fails_first_on_its_rung_and_in_its_way(name):
    symptom, program = SYMPTOMS[name], readings(f"bug2_singlegpu:{name}").faulty
    if symptom.rung > 1 and name != "begin_lazily":
        program(Alone())
    time_limit_s = HANG_S if symptom.kind == "hang" else PATIENT_S
    found, what = fails_on(program, symptom.rung, time_limit_s)
    assert (found, KINDS[type(what)]) == (symptom.rung, symptom.kind)


def test_the_repaired_programs_agree_on_three_ranks_too():
    everything = [getattr(faults, name) for name in PLAYED]
    found = start(all_of, *everything, ranks=3, time_limit_s=PATIENT_S)
    assert found == [found[0]] * 3
    total, loss, counts, line, labels = found[0]
    assert total == 10 + 11 + 12
    assert loss == pytest.approx(_loss_of_the_union(ranks=3))
    assert counts == faults.count_words(Alone())
    assert line["loss"] < 1e-6
    assert labels == 8


def all_of(comm, *programs):
    return [program(comm) for program in programs]


def test_lazy_parameters_are_the_same_once_every_rank_has_called_the_model():
    assert fails_on(faults.begin_lazily, 2) == (None, None)


def test_a_loader_that_uses_the_communicator_fails_together_and_its_repair_does_not():
    both = readings("bug2_singlegpu:share_the_loader")
    assert both.faulty(Alone()) == both.repaired(Alone())
    assert fails_on(both.faulty, 2, HANG_S)[0] == 2
    assert fails_on(both.repaired, 2) == (None, None)


def test_models_that_are_never_broadcast_keep_their_distance():
    """Each rank takes the mean gradient, so the difference of the lines is that of their starts."""
    lines = start(readings("bug2_singlegpu:train_line").faulty, ranks=2)
    starts = [np.random.default_rng(rank).normal(size=2) for rank in (0, 1)]
    after = [np.array([line["slope"], line["offset"]]) for line in lines]
    np.testing.assert_allclose(after[0] - after[1], starts[0] - starts[1], atol=1e-12)


def test_the_words_of_the_whole_text_are_counted_alone():
    text = "one two three two two four five six six one seven six two eight nine one ten two ten"
    assert faults.count_words(Alone()) == {word: text.split().count(word) for word in text.split()}


# --- looking into a hang -------------------------------------------------------------------------


def test_the_calls_of_a_hang_say_where_the_ways_parted():
    program = readings("bug2_singlegpu:fit_line").faulty
    program(Alone())
    assert fails_on(program, 2) == (None, None)
    with pytest.raises(launch.TimeUp) as caught:
        start(program, ranks=4, time_limit_s=HANG_S)
    calls = caught.value.calls
    # 26 and 25 points are 6 and 5 batches, with two calls each
    assert last_seen.first_difference(calls) == 10
    assert [len(one) for one in calls] == [12, 12, 11, 11]
    assert [one[-1].ended for one in calls] == [False, False, True, True]
    said = last_seen.difference(calls)
    assert "ranks 0, 1: allreduce in `slope -= " in said
    assert "ranks 2, 3: allreduce in `return comm.allreduce(np.sum(" in said
    assert "in fit_line" in caught.value.stacks[0]
    assert caught.value.stacks[3] == ""
    assert "rank 0 was at `slope -= " in str(caught.value)


def test_the_command_tells_what_a_fault_shows(capsys):
    assert command.main([]) == 0
    assert {one.name for one in faults.SYMPTOMS} <= set(capsys.readouterr().out.split())
    assert command.main(["nothing"]) == 2
    assert command.main(["train_line", "--faulty", "--ranks", "2"]) == 1
    assert "The ranks do not agree." in capsys.readouterr().out
    assert command.main(["name_labels", "--ranks", "1"]) == 1
    assert "IndexError" in capsys.readouterr().out
    assert command.main(["name_labels", "--repaired", "--ranks", "1"]) == 0
    assert "a label without a name. Give each label a name." in capsys.readouterr().out


def test_healthy_programs_climb_from_each_rank_alone_to_all_ranks(tmp_path):
    done = launch.mpirun(
        "allhands.train.rungs_here", "--out", tmp_path, ranks=2, time_limit_s=30
    ).text()
    assert done.splitlines() == [
        "each rank alone (1): all 4 programs agree",
        "the ranks of a node (2): all 4 programs agree",
        "all ranks (2): all 4 programs agree",
    ]
    assert len(last_seen.read(tmp_path / "rung2")) == 2
