"""Lab bug3: each fault shows its symptom, its repair has none; and what watches the ranks."""

import os
from types import SimpleNamespace

import chainer
import chainermn
import pytest

from allhands import launch
from allhands.train import on_gpus
from allhands.train.faults import __main__ as command
from allhands.train.faults.readings import readings
from allhands.train.on_gpus import on_virtual_gpus
from allhands.train.on_ranks import on_ranks
from allhands.train.virtual_gpu import virtual

OWN = ["0", "1", "2", "3"]  # CUDA_VISIBLE_DEVICES, where the scheduler shows each rank its GPU
FAULTS = ["first_lines", "constants", "scaled", "twice", "choose", "physical", "unchosen", "copied"]


def both(name):
    return readings(f"bug3_togpu:{name}")


# --- the faults: the symptom is there, and gone ---------------------------------------------------


@pytest.mark.parametrize(
    ("name", "visible"),
    [
        *((name, None) for name in FAULTS if name != "physical"),
        ("physical", OWN),
        ("choose", OWN),
    ],
)
def test_a_repaired_program_is_calm_and_stays_on_its_gpu(name, visible):
    seen = on_virtual_gpus(both(name).repaired, visible=visible)
    assert seen.failed == ()
    for rank in seen.ranks:
        assert rank.warned == ()
        assert {gpu for gpu, used in rank.bytes_by_gpu.items() if used} <= {rank.rank}


@pytest.mark.parametrize(
    ("name", "visible", "failed", "words"),
    [
        ("first_lines", None, (1, 2, 3), "The device where the array resides (0) is different"),
        ("constants", None, (1, 2, 3), "The device where the array resides (0) is different"),
        ("twice", None, (1, 2, 3), "The device where the array resides (0) is different"),
        ("choose", OWN, (1, 2, 3), "cudaErrorInvalidDevice: invalid device ordinal"),
        ("physical", OWN, (1, 2, 3), "cudaErrorInvalidDevice: invalid device ordinal"),
        ("scaled", None, (0, 1, 2, 3), "incompatible array types are mixed in the forward input"),
    ],
)
def test_a_faulty_program_raises_on_these_ranks(name, visible, failed, words):
    seen = on_virtual_gpus(both(name).faulty, visible=visible)
    assert seen.failed == failed
    assert all(words in each.error for each in seen.ranks if each.error)
    assert f"{len(failed)} of 4 ranks failed." in str(seen)


@pytest.mark.parametrize("name", ["first_lines", "constants", "twice", "choose"])
def test_a_single_rank_does_not_show_it(name):
    assert on_virtual_gpus(both(name).faulty, 1).failed == ()


def test_the_late_choice_leaves_every_model_on_gpu_0():
    seen = on_virtual_gpus(both("first_lines").faulty)
    model_bytes = 4 * 512  # two parameters, two gradients
    assert [each.bytes_by_gpu[0] for each in seen.ranks] == [model_bytes + 1024] + [model_bytes] * 3
    assert seen.ranks[1].at == "y = model(x)"


def test_the_constant_raises_far_from_the_line_that_made_it():
    seen = on_virtual_gpus(both("constants").faulty)
    assert all("mean_squared_error(y, target)" in each.at for each in seen.ranks[1:])


def test_the_device_set_twice_warns_where_it_is_ignored():
    seen = on_virtual_gpus(both("twice").faulty)
    assert seen.ranks[0].warned == ()
    for each in seen.ranks[1:]:
        assert "`DeviceResident.to_gpu` does nothing" in each.warned[0]


def test_peer_access_makes_the_late_choice_silent_but_for_a_warning():
    seen = on_virtual_gpus(both("first_lines").faulty, peer_access=True)
    assert seen.failed == ()
    assert [len(each.warned) for each in seen.ranks] == [0, 1, 1, 1]
    assert seen.bytes_by_gpu[0] > sum(seen.bytes_by_gpu[1:])


def test_without_a_choice_all_bytes_are_on_gpu_0_and_nobody_says_so():
    seen = on_virtual_gpus(both("unchosen").faulty)
    assert seen.failed == ()
    assert not any(each.warned for each in seen.ranks)
    assert seen.bytes_by_gpu[0] > 0
    assert seen.bytes_by_gpu[1:] == [0, 0, 0]


def test_the_optimizer_of_a_copy_teaches_nothing_on_any_rank():
    for each in on_virtual_gpus(both("copied").faulty).ranks:
        assert each.kept["after"] == each.kept["before"] == 1
    for each in on_virtual_gpus(both("copied").repaired).ranks:
        assert each.kept["after"] < 0.01 * each.kept["before"]


def with_chainermn(comm, first_lines):
    from allhands.train.virtual_gpu import gpus

    cupy = gpus(comm.intra_size)
    model = first_lines(comm, cupy)["model"]
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
    optimizer.setup(model)
    optimizer.update()
    for _ in range(3):
        x = cupy.full((8, 4), 1 + comm.rank, dtype="float32")
        loss = chainer.functions.sum(model(x))
        model.cleargrads()
        loss.backward()
        optimizer.update()
    return model.W.array.device.id, model.W.array.tolist()


def test_on_real_ranks_three_raise_and_rank_0_waits_in_vain():
    both_readings = both("first_lines")
    done = on_ranks(with_chainermn, both_readings.repaired, ranks=4, chainermn=True)
    assert [device for device, _ in done] == [0, 1, 2, 3]
    assert all(weights == done[0][1] for _, weights in done)  # trained, and all the same
    with pytest.raises(launch.RanksFailed) as failed:
        on_ranks(with_chainermn, both_readings.faulty, ranks=4, chainermn=True)
    told = str(failed.value)
    assert all(f"rank {rank} raised ValueError" in told for rank in (1, 2, 3))
    assert "rank 0 raised" not in told
    assert "rank 0 was stopped" in told


# --- what watches ---------------------------------------------------------------------------------


def test_a_second_node_counts_its_gpus_from_0():
    def program(comm, cupy):
        return {"rank": comm.rank, "gpu": comm.intra_rank, "node": comm.inter_rank}

    seen = on_virtual_gpus(program, first_rank=4)
    assert [each.kept for each in seen.ranks] == [
        {"rank": 4 + n, "gpu": n, "node": 1} for n in range(4)
    ]


def test_a_watched_program_begins_on_device_0_like_a_new_process():
    def program(comm, cupy):
        before = cupy.cuda.Device().id
        cupy.cuda.Device(3).use()
        return {"before": before}

    with virtual() as cupy:
        comm = SimpleNamespace(rank=0)
        for _ in range(2):
            assert on_gpus.observe(comm, program, cupy).kept == {"before": 0}


def test_the_variable_is_as_before_when_the_rehearsal_is_over(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    seen = on_virtual_gpus(both("choose").repaired, visible=OWN)
    assert seen.bytes_by_gpu == [512] * 4
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


@pytest.mark.parametrize("reading", ["faulty", "repaired"])
def test_a_rehearsal_sees_what_real_ranks_see(monkeypatch, reading):
    """Real ranks, still on virtual devices: the way that `on_gpus` takes on a node with GPUs."""
    monkeypatch.setattr(on_gpus, "real_gpus", lambda: 4)
    program = both("twice").named(reading)
    assert on_gpus.on_gpus(program) == on_virtual_gpus(program)


@pytest.mark.parametrize("command", [on_gpus.main, command.main])
def test_the_commands_refuse_in_a_sentence_what_they_cannot_show(monkeypatch, capsys, command):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert command(["nothing"]) == 2
    said = capsys.readouterr().out
    assert said.startswith("There is no fault 'nothing'")
    assert "physical" in said
    assert "born" not in said  # a program, and no fault
    assert command(["physical"]) == 2
    assert "physical reads CUDA_VISIBLE_DEVICES, which its ranks do" in capsys.readouterr().out


def test_physical_is_repaired_without_a_list_too(monkeypatch, capsys):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert command.main(["physical", "--repaired"]) == 0
    assert "0 of 2 ranks failed." in capsys.readouterr().out
