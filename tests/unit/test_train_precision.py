"""Chainer's mixed precision in a run: what it computes, what it refuses, and exact resume."""

import warnings

import chainer
import numpy as np
import pytest
from rich.console import Console

from allhands import config as configs
from allhands.data.batch import collate
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.trace.summary import read_metrics
from allhands.train import precision, run
from allhands.train.translator import Translator

QUIET = Console(quiet=True)
SIZE = ModelSize(12, 10, 6, 8)
BATCH = collate([([4, 5, 6], [7, 8]), ([5, 4], [8, 9, 7]), ([6, 6, 4], [4])])
TINY = [
    *("n_embed=8", "n_hidden=8", "batch_size=16", "epochs=3"),
    *("evaluate_every=10", "evaluate_pairs=4", "snapshot_every=7"),
]


def configured(*settings: str) -> configs.TrainConfig:
    return configs.override(configs.lab3_cpu(), settings)


def new_parts(*settings: str):
    """(model, optimizer) as a run makes them."""
    config = configured(*settings)
    with precision.numbers(config):
        model = Seq2Seq(SIZE, seed=0)
    optimizer = chainer.optimizers.Adam(1e-2)
    precision.prepare(optimizer, config)
    optimizer.setup(model)
    optimizer.add_hook(precision.clipping(config))
    return model, optimizer


def step(model, optimizer) -> float:
    loss = model.loss(BATCH)
    model.cleargrads()
    precision.backward(loss, optimizer)
    precision.update(optimizer)
    return float(loss.array)


def arrays(model) -> list[np.ndarray]:
    return [param.array.copy() for _, param in sorted(model.namedparams())]


def same(ours, theirs) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["fp16", "mixed"])
def test_the_model_is_fp16_with_the_rounded_weights_of_the_fp32_model(name):
    model, _ = new_parts(f"precision={name}")
    exact, _ = new_parts("precision=fp32")
    assert same(arrays(model), [array.astype(np.float16) for array in arrays(exact)])
    assert model.loss(BATCH).dtype == np.float32


def test_fp32_is_left_as_it_is():
    model, optimizer = new_parts("precision=fp32", "loss_scale=1024")
    hook = precision.clipping(configured("precision=fp32"))
    assert isinstance(hook, chainer.optimizer_hooks.GradientClipping)
    assert optimizer._loss_scale is None
    assert {param.dtype for param in model.params()} == {np.dtype(np.float32)}


def test_mixed_precision_learns_as_fp32_does():
    losses = {}
    for name in ("fp32", "mixed"):
        model, optimizer = new_parts(f"precision={name}")
        losses[name] = [step(model, optimizer) for _ in range(30)]
    assert losses["mixed"] == pytest.approx(losses["fp32"], rel=0.02)
    assert losses["mixed"][-1] < losses["mixed"][0] / 2


def test_pure_fp16_is_spoilt_by_adam_without_any_error():
    """v, the mean square of a small gradient, is 0 in FP16: the step lr x m / eps is too long."""
    model, optimizer = new_parts("precision=fp16", "loss_scale=none")
    before = arrays(model)
    with np.errstate(all="ignore"):
        losses = [step(model, optimizer) for _ in range(3)]
    moved = [np.abs(new - old) for new, old in zip(arrays(model), before, strict=True)]
    assert not all((size <= 100 * optimizer.alpha).all() for size in moved)  # too far, or nan
    assert losses[-1] > 2 * losses[0]


def test_the_dynamic_scale_doubles_then_halves_at_an_overflow_and_the_step_is_left_out():
    model, optimizer = new_parts()
    scales = []
    for _ in range(3):
        scales.append(optimizer._loss_scale)
        step(model, optimizer)
    assert scales == [1, 2, 4]
    optimizer._loss_scale = 65504.0
    before = arrays(model)
    state = [param.update_rule.state["m"].copy() for _, param in sorted(model.namedparams())]
    model.cleargrads()
    precision.backward(model.loss(BATCH), optimizer)
    model.output.b.grad[0] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        precision.update(optimizer)
    assert optimizer._loss_scale == 32752
    assert same(arrays(model), before)
    after = [param.update_rule.state["m"] for _, param in sorted(model.namedparams())]
    assert same(after, state)


def test_a_static_scale_stays_and_changes_nothing_but_rounding():
    losses = {}
    for scale in ("none", "1024"):
        model, optimizer = new_parts(f"loss_scale={scale}")
        losses[scale] = [step(model, optimizer) for _ in range(10)]
    assert optimizer._loss_scale == 1024
    assert losses["1024"] == pytest.approx(losses["none"], rel=0.01)


@pytest.mark.parametrize("scale", ["none", "64", "4096"])
def test_clipping_is_of_the_true_gradients(scale):
    """After the hook the gradients, divided by the scale, have the norm of the limit."""
    model, optimizer = new_parts(f"loss_scale={scale}", "clip_norm=0.25")
    model.cleargrads()
    precision.backward(model.loss(BATCH), optimizer)
    precision.clipping(configured("clip_norm=0.25"))(optimizer)
    divisor = 1 if scale == "none" else float(scale)
    flat = np.concatenate([p.grad.ravel() for p in model.params()]).astype(np.float64) / divisor
    assert np.linalg.norm(flat) == pytest.approx(0.25, rel=2e-3)


def test_small_gradients_are_not_clipped():
    model, optimizer = new_parts("loss_scale=256")
    model.cleargrads()
    precision.backward(model.loss(BATCH), optimizer)
    before = [param.grad.copy() for param in model.params()]
    precision.ClipUnscaled(1e4)(optimizer)
    assert same([param.grad for param in model.params()], before)


def test_the_squares_of_scaled_gradients_do_not_overflow_in_the_norm():
    """Chainer's own hook adds up the squares in FP16: inf, and then all gradients are 0."""
    found = {}
    for hook in (chainer.optimizer_hooks.GradientClipping(5.0), precision.ClipUnscaled(5.0)):
        model, optimizer = new_parts("loss_scale=4096")
        model.cleargrads()
        precision.backward(model.loss(BATCH), optimizer)
        with np.errstate(all="ignore"):
            hook(optimizer)
        found[type(hook)] = sum(float(np.abs(param.grad).sum()) for param in model.params())
    assert found[chainer.optimizer_hooks.GradientClipping] == 0
    assert found[precision.ClipUnscaled] > 0


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> configs.TrainConfig:
    """A tiny run over a hundred pairs: digits in words, and as digits."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    rng = np.random.RandomState(0)
    path = tmp_path_factory.mktemp("corpus") / "digits.tsv"
    rows = [rng.randint(10, size=rng.randint(1, 5)) for _ in range(100)]
    lines = [" ".join(words[d] for d in row) + "\t" + "".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return configured(*TINY, *(f"{split}={path}" for split in ("train", "valid", "test")))


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run.train(config, folder, console=QUIET).finished
    return folder


def test_a_run_writes_the_scale_of_each_update(whole):
    scales = [line["loss_scale"] for line in read_metrics(whole).updates]
    assert scales[:3] == [2, 4, 8]
    assert max(scales) <= 65504


@pytest.mark.parametrize("n_updates", [1, 10, 20])
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(
    whole, config, tmp_path, n_updates
):
    ticks = iter(range(10**6))
    clock = lambda: 0.0 if next(ticks) <= n_updates else 1.0  # noqa: E731
    stopped = run.train(config, tmp_path / "run", stop_after_s=1, clock=clock, console=QUIET)
    assert (stopped.finished, stopped.n_updates) == (False, n_updates)
    assert run.train(config, tmp_path / "run", resume=True, console=QUIET).finished
    ours, theirs = read_metrics(tmp_path / "run"), read_metrics(whole)
    assert ours.losses == theirs.losses
    named = "loss_scale"
    assert [one[named] for one in ours.updates] == [one[named] for one in theirs.updates]
    with np.load(tmp_path / "run" / "model.npz") as one, np.load(whole / "model.npz") as other:
        assert same([one[name] for name in other.files], [other[name] for name in other.files])


def test_a_finished_run_is_loaded_as_fp16(whole):
    model = Translator.load(whole).model
    assert {param.dtype for param in model.params()} == {np.dtype(np.float16)}


def test_what_to_try_after_nan_in_pure_fp16_is_mixed_precision():
    assert "--set precision=mixed" in precision.why_not_finite(configured("precision=fp16"))


def test_a_static_scale_that_overflows_ends_with_the_reason(config, tmp_path):
    wild = configs.override(config, ["loss_scale=1e9"])
    with (
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"static loss scale 1e9 .*loss_scale=dynamic"),
    ):
        run.train(wild, tmp_path / "run", console=QUIET)


@pytest.mark.parametrize("scale", ["0", "-2", "inf", "nan", "large"])
def test_a_loss_scale_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="loss_scale must be dynamic, none or a positive number"):
        configured(f"loss_scale={scale}")


def test_the_two_gpu_presets_differ_in_precision_alone_and_fit_tensor_cores():
    mixed, fp32 = configs.lab3_gpu(), configs.lab3_gpu_fp32()
    changed = configs.differences(fp32, mixed)
    assert changed == ["preset: lab3_gpu_fp32 -> lab3_gpu", "precision: fp32 -> mixed"]
    assert all(size % 8 == 0 for size in (mixed.n_embed, mixed.n_hidden, mixed.batch_size))
