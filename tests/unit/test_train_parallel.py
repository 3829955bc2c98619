"""Lab 2's edits, rank by rank without MPI: what each must give so that N ranks are as one."""

import importlib.util
import signal
from functools import partial
from types import SimpleNamespace

import chainer
import numpy as np
import pytest
from rich.console import Console

from allhands import config as configs
from allhands import launch
from allhands.data.batch import batch_of
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.train import parallel, parallel_job, quality, run
from allhands.train.alone import ALONE
from allhands.train.build import n_pairs
from allhands.train.stop import INTERRUPTED, StopTrigger


def rank_of(rank: int, size: int, others: object = None) -> SimpleNamespace:
    """A communicator of one rank, whose all-reduce adds what the other ranks gave: `others`."""
    add = (lambda mine: mine + others) if others is not None else (lambda mine: mine)
    return SimpleNamespace(rank=rank, size=size, intra_rank=rank, allreduce_obj=add)


# Edit 1 and 2: who speaks with whom, and where


def test_a_communicator_that_cannot_be_is_refused_in_a_sentence():
    sentence = r"no communicator 'naive' here \(.*only available.*\).*on CPUs give naive"
    with pytest.raises(ValueError, match=sentence):
        parallel.communicator("naive", allreduce_grad_dtype="float16")


def test_without_a_gpu_every_rank_computes_with_numpy(monkeypatch):
    monkeypatch.setattr(parallel.devices, "gpu_is_usable", lambda: False)
    assert parallel.device_of(rank_of(1, 2)) == "@numpy"


@pytest.mark.parametrize(
    ("n_gpus", "intra_rank", "device"), [(4, 0, "@cupy:0"), (4, 3, "@cupy:3"), (1, 3, "@cupy:0")]
)
def test_a_gpu_is_chosen_by_the_rank_within_the_node(monkeypatch, n_gpus, intra_rank, device):
    """Rank 7 of the job may be number 3 of its node; a scheduler may show each rank one GPU."""
    show_gpus(monkeypatch, n_gpus)
    comm = SimpleNamespace(rank=7, size=8, intra_rank=intra_rank)
    assert parallel.device_of(comm) == device


def test_more_ranks_than_gpus_on_a_node_are_refused(monkeypatch):
    show_gpus(monkeypatch, 2)
    with pytest.raises(ValueError, match="number 2 of its node, which has 2 GPUs"):
        parallel.device_of(SimpleNamespace(rank=6, size=8, intra_rank=2))


def show_gpus(monkeypatch, n_gpus: int) -> None:
    runtime = SimpleNamespace(getDeviceCount=lambda: n_gpus)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(parallel.devices, "gpu_is_usable", lambda: True)
    monkeypatch.setattr(chainer.backends.cuda, "cupy", cupy)


# Edit 3: shares of the pairs, and the weights that make up for unequal ones


def test_a_share_is_known_by_hand():
    """Five samples on two ranks: three and two, and the seed decides which."""
    shares = [parallel.shard(5, rank_of(rank, 2), seed=1) for rank in range(2)]
    assert [len(share) for share in shares] == [3, 2]
    assert sorted([*shares[0], *shares[1]]) == [0, 1, 2, 3, 4]


class Pairs:
    """A store of five pairs of different lengths."""

    source_lengths = target_lengths = np.array([1, 4, 2, 3, 2])

    def __len__(self) -> int:
        return 5

    def source(self, i: int) -> list[int]:
        return [4 + i] * int(self.source_lengths[i])

    def target(self, i: int) -> list[int]:
        return [5 + i] * int(self.target_lengths[i])


def gradient(numbers: list[int], comm) -> np.ndarray:
    """What one rank brings to the all-reduce: the gradient of its weighted loss."""
    model = Seq2Seq(ModelSize(10, 10, 3, 4), seed=0)
    loss = parallel.weight(len(numbers), comm) * model.loss(batch_of(Pairs(), numbers))
    model.cleargrads()
    loss.backward()
    return np.concatenate([param.grad.ravel() for _, param in sorted(model.namedparams())])


@pytest.mark.parametrize("shares", [[[0, 1, 2, 3, 4]], [[0, 3], [1, 2, 4]], [[4, 1, 2, 0, 3], []]])
def test_the_mean_of_the_ranks_gradients_is_that_of_all_their_pairs(shares):
    """The loss is a mean over sentences, so a rank with more sentences must count for more."""
    whole = gradient([0, 1, 2, 3, 4], ALONE)
    ranks = [rank_of(rank, len(shares), 5 - len(mine)) for rank, mine in enumerate(shares)]
    each = [gradient(mine, comm) for mine, comm in zip(shares, ranks, strict=True)]
    np.testing.assert_allclose(np.mean(each, axis=0), whole, rtol=1e-4, atol=1e-6)


def test_a_row_of_padding_counts_as_no_pair():
    assert n_pairs(batch_of(Pairs(), [])) == 0
    assert n_pairs(batch_of(Pairs(), [3, 1])) == 2


# Edit 5: an evaluation is made of sums

SAID = ["七", "五十二", "三百四十", "九千九", "二十", "八"]
WANTED = ["七", "五十三", "三百四十", "九千九百", "二十", "九"]


@pytest.mark.parametrize("cut", [1, 2, 5, 6])
def test_figures_of_summed_counts_are_those_of_the_whole_corpus(cut):
    """Also if a rank has no pair at all (cut 6)."""
    first = quality.count(SAID[:cut], WANTED[:cut], "chars")
    second = quality.count(SAID[cut:], WANTED[cut:], "chars")
    counts = np.array([second[name] for name in sorted(second)], float)
    summed = parallel.total(first, rank_of(0, 2, counts))
    assert quality.quality(summed) == quality.judge(SAID, WANTED, "chars")


def test_a_mean_of_two_bleus_is_not_the_bleu_of_both():
    whole = quality.judge(SAID, WANTED, "chars")
    halves = [quality.judge(SAID[cut], WANTED[cut], "chars") for cut in (slice(4), slice(4, 6))]
    assert np.mean([half.bleu for half in halves]) != pytest.approx(whole.bleu, abs=1)


# Edit 7


def test_the_learning_rate_grows_with_the_batch_or_its_root():
    assert parallel.rate_factor("linear", 4) == 4
    assert parallel.rate_factor("sqrt", 4) == 2
    assert parallel.rate_factor("none", 4) == 1
    for name in ("linear", "sqrt", "none"):
        assert parallel.rate_factor(name, 1) == 1
    with pytest.raises(ValueError, match="one of none, sqrt, linear: it is 'cubic'"):
        parallel.rate_factor("cubic", 2)


# A participant's own edits


def own_shard(n_samples: int, comm, seed: int) -> np.ndarray:
    return np.arange(n_samples)[comm.rank :: comm.size]


def test_written_edits_stand_in_for_the_right_ones(tmp_path):
    path = parallel.write_edits(tmp_path / "mine.py", own_shard, parallel.rate_factor)
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.shard = module.own_shard
    edits = parallel.Edits.from_module(module)
    assert edits.shard(6, rank_of(1, 2), 0).tolist() == [1, 3, 5]
    assert edits.rate_factor("sqrt", 9) == 3
    assert edits.total is parallel.total
    assert parallel.Edits() == parallel.RIGHT


def test_what_has_no_source_cannot_be_written_down(tmp_path):
    with pytest.raises(ValueError, match="has no source"):
        parallel.write_edits(tmp_path / "mine.py", len)


# The config, and the ranks that come up


def test_a_preset_for_several_ranks_takes_as_many_as_come_up():
    assert configs.on_ranks(configs.lab2_cpu(), 3).ranks == 3


@pytest.mark.parametrize(
    ("asked", "started", "sentence"),
    [
        (1, 2, "a run on 1 rank here, and 2 came up. Start it on one, or .* lab2_cpu"),
        (2, 1, "a run on 2 ranks here, and 1 came up. Give --ranks 2"),
    ],
)
def test_another_number_of_ranks_is_refused(asked, started, sentence):
    config = configs.override(configs.lab2_cpu(), [f"ranks={asked}"])
    assert configs.on_ranks(config, asked) == config
    with pytest.raises(ValueError, match=sentence):
        configs.on_ranks(config, started)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("double_buffering=true", "double_buffering=True needs the communicator pure_nccl"),
        ("allreduce_dtype=float16", "allreduce_dtype=float16 needs the communicator pure_nccl"),
        ("double_buffering=maybe", "takes true or false, saw 'maybe'"),
        ("communicator=hierarchical", "communicator must be one of auto, naive"),
        ("rate_scaling=cubic", "rate_scaling must be one of none, sqrt, linear"),
        ("ranks=-1", "ranks must not be negative"),
    ],
)
def test_a_config_that_cannot_run_gets_a_sentence(setting, sentence):
    with pytest.raises(ValueError, match=sentence):
        configs.override(configs.lab2_cpu(), [setting])


def test_pure_nccl_does_not_speak_between_cpus():
    config = configs.override(configs.lab2_gpu(), ["device=@numpy"])
    with pytest.raises(ValueError, match="pure_nccl speaks between GPUs"):
        parallel_job.join(config)


def test_a_run_on_one_rank_needs_no_mpi():
    config, comm = parallel_job.join(configs.lab1_cpu())
    assert comm is ALONE
    assert config == configs.lab1_cpu()


def test_a_launcher_says_who_we_are():
    assert launch.place({"PMI_RANK": "1", "PMI_SIZE": "2"}) == (1, 2)
    assert launch.place({"ALLHANDS_RANKS": "4", "SLURM_PROCID": "3"}) == (3, 4)
    assert launch.place({}) == (0, 1)


# All stop, and all refuse, together


def test_a_signal_that_one_rank_hears_stops_all(monkeypatch):
    trainer = SimpleNamespace(updater=SimpleNamespace(epoch=0))
    heard = StopTrigger(epochs=1, comm=rank_of(0, 2, [(1, "signal SIGTERM")]))
    assert heard(trainer)
    assert heard.reason == "signal SIGTERM"
    assert not StopTrigger(epochs=1, comm=rank_of(0, 2, [(1, None)]))(trainer)


def test_a_signal_that_comes_while_the_ranks_talk_is_heard_at_the_next_step():
    trainer = SimpleNamespace(updater=SimpleNamespace(epoch=0))
    comm = rank_of(0, 2)
    trigger = StopTrigger(epochs=1, comm=comm)

    def talk(mine: list) -> list:
        trigger.request(INTERRUPTED)
        return [*mine, (1, None)]

    comm.allreduce_obj = talk
    assert not trigger(trainer)
    assert trigger(trainer)
    assert trigger.reason == INTERRUPTED


def test_ctrl_c_counts_more_than_the_time_limit():
    """The exit code hangs on the reason, and must be the same on all ranks."""
    trainer = SimpleNamespace(updater=SimpleNamespace(epoch=0))
    late = StopTrigger(epochs=1, comm=rank_of(0, 2, [(1, INTERRUPTED)]))
    late.request("the time is over")
    assert late(trainer)
    assert late.reason == INTERRUPTED


def test_what_one_rank_meets_all_refuse():
    refused = partial(pytest.raises, parallel_job.AllRefuse)
    other_fails, other_is_well = rank_of(0, 2, [(1, "no such file")]), rank_of(0, 2, [(1, None)])
    with refused(match=r"no such file \(rank 1\)"), parallel_job.together(other_fails):
        pass
    with refused(match=r"^the folder is full$"), parallel_job.together(other_is_well):
        raise ValueError("the folder is full")
    with parallel_job.together(other_is_well):
        pass


def test_alone_an_error_stays_what_it_is():
    with pytest.raises(OSError, match="disk full"), parallel_job.together(ALONE):
        raise OSError("disk full")


def test_an_error_of_one_rank_ends_the_job_with_its_sentence(capsys):
    ended = []
    comm = rank_of(1, 2)
    comm.mpi_comm = SimpleNamespace(Abort=ended.append)
    with pytest.raises(OSError, match="disk full"), parallel_job.nobody_waits(comm, wait_s=0):
        raise OSError("disk full")
    assert ended == [2]
    assert capsys.readouterr().err == "allhands: rank 1: disk full\n"


def test_signals_that_stop_a_run_are_those_that_are_passed_on():
    assert set(parallel_job.PASSED_ON) == {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}


def test_lab_2_runs_alone_without_mpi(tmp_path):
    """`run.train` from a notebook: the preset takes one rank."""
    small = ["n_embed=4", "n_hidden=4", "batch_size=2000", "epochs=1", "evaluate_pairs=2"]
    small += [f"test={tmp_path}/test.tsv"]
    (tmp_path / "test.tsv").write_text("seven\t七\n", encoding="utf-8")
    config = configs.override(configs.lab2_cpu(), small)
    result = run.train(config, tmp_path / "run", console=Console(quiet=True))
    assert (result.finished, result.n_updates) == (True, 4)
    assert configs.load(tmp_path / "run" / "config.json").ranks == 1
