"""The four steps by hand: against torch.amp, against exact arithmetic, and what they leave."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call

from allhands.data.batch import collate
from allhands.model.seq2seq import ModelSize
from allhands.model.seq2seq_torch import TorchSeq2Seq
from allhands.precision.scaler import LossScaler
from allhands.train import mixed


def new_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 6, generator=generator), torch.randn(16, 4, generator=generator)


def loss_of(model: nn.Module, seed: int = 0) -> torch.Tensor:
    inputs, wanted = data(seed)
    dtype = next(model.parameters()).dtype
    return (model(inputs.to(dtype)).float() - wanted).square().mean()


def state_of(optimizer) -> list[torch.Tensor]:
    """All numbers that the optimizer remembers, copied."""
    state = optimizer.state_dict()["state"]
    return [torch.as_tensor(value).clone() for one in state.values() for value in one.values()]


def same(ours, theirs) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def parts(seed: int = 0):
    """(model, half, master, optimizer) with one good step made, so that Adam has a state."""
    model = new_net(seed)
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    optimizer = torch.optim.Adam(master, lr=1e-2)
    assert mixed.step(half, master, optimizer, LossScaler(), loss_of(half))
    return model, half, master, optimizer


def test_the_half_copy_shares_nothing_and_keeps_whole_numbers():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = copy.deepcopy(model.state_dict())
    half = mixed.half_copy(model)
    assert {p.dtype for p in half.parameters()} == {torch.float16}
    assert half[1].num_batches_tracked.dtype == torch.int64
    with torch.no_grad():
        half[0].weight.zero_()
    assert same(model.state_dict().values(), before.values())
    assert next(mixed.half_copy(model, torch.bfloat16).parameters()).dtype == torch.bfloat16


def test_master_weights_are_fp32_and_share_no_memory():
    model = new_net()
    model[0].bias.requires_grad_(False)
    master = mixed.master_weights(model)
    assert same(master, model.parameters())
    assert [p.requires_grad for p in master] == [True, False, True, True]
    with torch.no_grad():
        master[0].add_(1)
    assert not torch.equal(master[0], model[0].weight)


def test_the_half_model_gets_rounded_weights_in_the_same_place():
    model = new_net()
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    held = half[0].weight
    with torch.no_grad():
        master[0].fill_(1 + 2.0**-11 + 2.0**-20)
    mixed.to_half(master, half)
    assert held is half[0].weight
    assert torch.all(held == 1 + 2.0**-10)


def test_updates_that_fp16_would_lose_add_up_in_the_master_weights():
    """At 1 the numbers of FP16 lie 2^-11 below apart; a thousand steps of 2^-14 are 1/16."""
    half = nn.Linear(1, 1, bias=False).half()
    nn.init.ones_(half.weight)
    master = mixed.master_weights(half)
    exact, lossy = (
        torch.optim.SGD(master, lr=2.0**-14),
        torch.optim.SGD(half.parameters(), 2.0**-14),
    )
    for _ in range(1024):
        half.weight.grad = torch.ones_like(half.weight)
        lossy.step()
        assert mixed.unscale(half, master, 1.0)
        exact.step()
    assert half.weight.item() == 1
    mixed.to_half(master, half)
    assert half.weight.item() == 1 - 1 / 16


def test_unscaling_happens_in_fp32():
    half = nn.Linear(2, 1, bias=False).half()
    master = mixed.master_weights(half)
    half.weight.grad = torch.tensor([[2.0**-10, 3.0]], dtype=torch.float16)
    assert mixed.unscale(half, master, 2.0**16)
    assert master[0].grad.tolist() == [[2.0**-26, 3 * 2.0**-16]]  # 2^-26 is 0 in FP16
    assert master[0].grad.dtype == torch.float32


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan])
def test_unscaling_sees_what_is_not_finite_in_any_parameter(wrong):
    _, half, master, _ = parts()
    half.zero_grad()
    loss_of(half).backward()
    half[2].bias.grad[-1] = wrong
    assert not mixed.unscale(half, master, 8.0)


def test_a_parameter_without_a_gradient_stays_without_one():
    _, half, master, _ = parts()
    half.zero_grad()
    half[2].bias.grad = torch.ones_like(half[2].bias)
    assert mixed.unscale(half, master, 1.0)
    assert [one.grad is None for one in master] == [True, True, True, False]


def test_gradients_after_unscaling_are_those_of_grad_scaler_to_the_bit():
    """FP32 parameters cast to FP16 inside the forward are master weights too, by autograd."""
    model = new_net()
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    inputs, wanted = data()
    casts = {name: param.half() for name, param in model.named_parameters()}
    output = functional_call(model, casts, inputs.half())
    scaler.scale((output.float() - wanted).square().mean()).backward()
    scaler.unscale_(optimizer)

    (loss_of(half) * 2.0**12).backward()
    assert mixed.unscale(half, master, 2.0**12)
    assert same([one.grad for one in master], [one.grad for one in model.parameters()])


def test_a_skipped_step_leaves_weights_and_optimizer_untouched_to_the_bit():
    _, half, master, optimizer = parts()
    before = [p.detach().clone() for p in (*half.parameters(), *master)]
    state, scaler = state_of(optimizer), LossScaler(2.0**100)
    assert not mixed.step(half, master, optimizer, scaler, loss_of(half))
    assert same((*half.parameters(), *master), before)
    assert same(state_of(optimizer), state)
    assert scaler.scale == 2.0**99


def test_after_the_skipped_steps_training_goes_on():
    _, half, master, optimizer = parts()
    scaler = LossScaler(2.0**40, interval=100)
    updated = [mixed.step(half, master, optimizer, scaler, loss_of(half)) for _ in range(40)]
    first = updated.index(True)
    assert 0 < first < 30
    assert all(updated[first:])
    assert scaler.scale == 2.0 ** (40 - first)


def test_a_step_moves_the_weights_as_exact_arithmetic_does():
    model = new_net()
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    exact = torch.optim.SGD(model.parameters(), lr=0.5)
    loss_of(model).backward()
    exact.step()
    mixed.step(half, master, torch.optim.SGD(master, lr=0.5), LossScaler(), loss_of(half))
    for ours, theirs in zip(master, model.parameters(), strict=True):
        torch.testing.assert_close(ours.data, theirs.data, rtol=0, atol=2e-3)


@pytest.mark.parametrize("scale", [1.0, 2.0**12])
def test_clipping_is_of_the_true_gradients_whatever_the_scale(scale):
    model = new_net()
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    before = [p.detach().clone() for p in master]
    optimizer = torch.optim.SGD(master, lr=1.0)
    mixed.step(half, master, optimizer, LossScaler.static(scale), loss_of(half), clip_norm=1e-2)
    moved = [(p.detach() - was).square().sum() for p, was in zip(master, before, strict=True)]
    assert sum(moved).sqrt().item() == pytest.approx(1e-2, rel=1e-3)


def test_a_loss_in_fp16_cannot_be_scaled_by_65536():
    """The scale is the gradient of the loss, and 65536 is infinite in FP16."""
    _, half, master, optimizer = parts()
    assert not mixed.step(half, master, optimizer, LossScaler(2.0**16), loss_of(half).half())
    assert mixed.step(half, master, optimizer, LossScaler(2.0**16), loss_of(half))


def test_the_library_s_step_and_ours_take_the_same_way():
    """autocast rounds at other places, so the weights are near, not equal."""
    model = new_net()
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    ours, theirs = torch.optim.SGD(master, lr=0.1), torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for seed in range(20):
        assert mixed.step(half, master, ours, LossScaler(), loss_of(half, seed), 1.0)
        assert mixed.library_step(model, lambda m, s=seed: loss_of(m, s), theirs, scaler, 1.0)
    for one, other in zip(master, model.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, rtol=0, atol=5e-3)


def test_the_library_s_step_skips_and_says_so():
    model = new_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    assert not mixed.library_step(model, loss_of, optimizer, scaler)
    assert same(model.parameters(), before)


def test_a_scaler_that_switched_itself_off_is_refused():
    if torch.cuda.is_available():
        pytest.skip("with a GPU GradScaler() is not switched off")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        scaler = torch.amp.GradScaler()
    model = new_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"switched off.*GradScaler\('cpu'\)"):
        mixed.library_step(model, loss_of, optimizer, scaler)


def batch():
    return collate([([4, 5, 6], [7, 8]), ([5, 4], [8, 9, 7]), ([6, 6, 4], [4])])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_translator_s_lstm_runs_under_autocast_on_a_cpu(dtype):
    model = TorchSeq2Seq(ModelSize(12, 10, 8, 8), seed=0)
    exact = model.loss(batch()).item()
    losses = []

    def loss(m):
        losses.append(m.loss(batch()))
        return losses[-1]

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(5):
        assert mixed.library_step(model, loss, optimizer, scaler, 5.0, dtype)
    assert losses[0].item() == pytest.approx(exact, rel=2e-2)
    assert losses[-1] < losses[0]


def test_autocast_leaves_onednn_as_it_was():
    before = torch.backends.mkldnn.enabled
    with mixed.autocast("cpu", torch.float16):
        assert not torch.backends.mkldnn.enabled
    assert torch.backends.mkldnn.enabled == before


def test_the_translator_trains_by_hand_in_fp16():
    model = TorchSeq2Seq(ModelSize(12, 10, 8, 8), seed=0)
    half, master = mixed.half_copy(model), mixed.master_weights(model)
    optimizer = torch.optim.SGD([p for p in master if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(5):
        loss = half.loss(batch())
        losses.append(loss.item())
        assert mixed.step(half, master, optimizer, LossScaler(2.0**10), loss, 5.0)
    assert losses[0] == pytest.approx(model.loss(batch()).item(), rel=1e-2)
    assert losses[-1] < losses[0]
