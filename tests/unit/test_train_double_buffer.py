"""Double buffering: the model for the CPU makes the updates of ChainerMN's own class."""

import chainer
import chainermn
import numpy as np
import pytest
from chainermn.optimizers import _DoubleBufferingOptimizer
from mpi4py import MPI

from allhands.config import lab1_cpu
from allhands.train import double_buffer
from allhands.train.build import open_corpus
from allhands.train.double_buffer import delayed, step_s, train

RATE = 0.5


class Alone:
    """A communicator of one rank, whose exchange is over at once; it counts its broadcasts."""

    rank, size = 0, 1

    def __init__(self):
        self.broadcasts = 0

    def bcast_data(self, model):
        self.broadcasts += 1

    def multi_node_mean_grad(self, model, zero_fill=False):
        for param in model.params():
            if zero_fill and param.grad is None and param.data is not None:
                param.grad = np.zeros_like(param.data)

    def _multi_node_mean_grad_async(self, model, zero_fill, stream):
        self.multi_node_mean_grad(model, zero_fill)


class NoStream:
    """What ChainerMN's class wants of CUDA: to wait for a stream."""

    def __init__(self, non_blocking=False):
        pass

    def synchronize(self):
        pass


NoStream.null = NoStream()


def real_class(optimizer, communicator):
    """ChainerMN's own class; `create_multi_node_optimizer` refuses it without NCCL."""
    return _DoubleBufferingOptimizer(optimizer, communicator, True)


@pytest.fixture
def no_gpu_needed(monkeypatch):
    monkeypatch.setattr(chainer.cuda, "Stream", NoStream, raising=False)


class Square(chainer.Chain):
    """Loss w*w / 2, so that the gradient is w itself."""

    def __init__(self, start):
        super().__init__()
        with self.init_scope():
            self.w = chainer.Parameter(np.array([start], np.float32))

    def step(self, optimizer):
        loss = chainer.functions.sum(self.w * self.w) / 2
        self.cleargrads()
        loss.backward()
        optimizer.update()
        return float(self.w.array[0])


def walk(make, n_calls, start=8.0):
    """The parameter after each call of update()."""
    model = Square(start)
    optimizer = make(chainer.optimizers.SGD(RATE), Alone()).setup(model)
    return [model.step(optimizer) for _ in range(n_calls)], optimizer


def test_the_first_updates_by_hand():
    # g(w) = w, rate 1/2, w0 = 8. Two calls without an update; then the gradient of the call before:
    # 8 - 8/2 = 4 (call 2's), 4 - 8/2 = 0 (call 3's, at 8 too), 0 - 4/2 = -2 (call 4's, at 4),
    # -2 - 0/2 = -2, -2 - (-2)/2 = -1.
    assert walk(delayed, 7)[0] == [8, 8, 4, 0, -2, -2, -1]


def test_without_the_delay_the_same_problem_just_shrinks():
    fresh = walk(lambda opt, comm: chainermn.create_multi_node_optimizer(opt, comm), 5)[0]
    assert fresh == [8, 4, 2, 1, 0.5]


def test_n_calls_make_two_updates_less():
    assert [walk(delayed, n)[1].t for n in (1, 2, 3, 7)] == [0, 0, 1, 5]


def test_it_walks_as_chainermns_own_class(no_gpu_needed):
    assert walk(delayed, 12)[0] == walk(real_class, 12)[0]


def deep(make, *, new_link_at=None):
    """Train a small net for eight steps with Adam and clipping; one layer is used from step 3 on,
    and gets its shape then. With `new_link_at` the net gets one more link before that step."""
    rng = np.random.RandomState(0)
    model = chainer.Chain()
    with model.init_scope():
        model.first = chainer.links.Linear(3, 4, initialW=rng.randn(4, 3).astype("f"))
        model.late = chainer.links.Linear(None, 1, initialW=chainer.initializers.Constant(0.3))
    communicator = Alone()
    optimizer = make(chainer.optimizers.Adam(0.1), communicator).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(1.0))
    for step in range(8):
        if step == new_link_at:
            model.add_link("new", chainer.links.Bias(shape=(4,)))
        h = chainer.functions.tanh(model.first(rng.randn(5, 3).astype("f")))
        loss = chainer.functions.mean((model.late(h) if step >= 3 else h) ** 2)
        model.cleargrads()
        loss.backward()
        optimizer.update()
    return {name: param.array for name, param in model.namedparams()}, communicator, optimizer.t


@pytest.mark.parametrize(
    ("new_link_at", "broadcasts"),
    [(None, 1), (5, 2)],  # that the late layer got its shape makes none: nobody notices
)
def test_adam_hooks_and_late_parameters_go_as_in_chainermns_own_class(
    no_gpu_needed, new_link_at, broadcasts
):
    mine, my_comm, my_t = deep(delayed, new_link_at=new_link_at)
    theirs, their_comm, their_t = deep(real_class, new_link_at=new_link_at)
    assert my_comm.broadcasts == their_comm.broadcasts == broadcasts
    assert my_t == their_t
    for name in theirs:
        np.testing.assert_array_equal(mine[name], theirs[name])


def test_chainermn_itself_refuses_double_buffering_on_the_cpu():
    naive = chainermn.create_communicator("naive", MPI.COMM_SELF)
    with pytest.raises(ValueError, match="does not support double buffering"):
        chainermn.create_multi_node_optimizer(
            chainer.optimizers.SGD(), naive, double_buffering=True
        )


def test_the_delayed_training_makes_as_many_updates_and_other_parameters():
    naive = chainermn.create_communicator("naive", MPI.COMM_SELF)
    corpus = open_corpus(lab1_cpu())
    small = {"seed": 0, "updates": 6, "batch_size": 8, "corpus": corpus}
    fresh, late = (train(naive, delay=delay, **small) for delay in (False, True))
    assert fresh.updates == late.updates == 6
    assert fresh.valid_loss_per_token != late.valid_loss_per_token
    again = train(naive, delay=True, **small)
    assert again == late


def test_two_ranks_share_the_batch_and_come_to_the_same_as_one():
    small = {"updates": 6, "batch_size": 8}
    both = double_buffer.compare([3], ranks=2, **small)
    naive = chainermn.create_communicator("naive", MPI.COMM_SELF)
    for found, delay in zip(both, (False, True), strict=True):
        alone = train(naive, delay=delay, seed=3, **small)
        assert (found.seed, found.delay, found.updates) == (3, delay, 6)
        assert found.train_loss_per_token == pytest.approx(alone.train_loss_per_token, rel=1e-4)
        assert found.valid_loss_per_token == pytest.approx(alone.valid_loss_per_token, rel=1e-4)
    assert len(double_buffer.table(both).splitlines()) == 3


def test_a_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(ValueError, match="9 pairs cannot be cut into 2"):
        double_buffer.compare([0], batch_size=9, ranks=2)


@pytest.mark.parametrize(
    ("compute", "communicate", "with_it", "without"), [(9, 1, 9, 10), (4, 4, 4, 8), (2, 6, 6, 8)]
)
def test_a_step_takes_the_longer_of_both(compute, communicate, with_it, without):
    assert step_s(compute, communicate, double_buffering=True) == with_it
    assert step_s(compute, communicate, double_buffering=False) == without


def test_negative_times_are_refused():
    with pytest.raises(ValueError, match="not negative"):
        double_buffer.step_s(-1, 2, double_buffering=True)
