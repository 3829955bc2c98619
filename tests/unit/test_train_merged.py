"""Merged all-reduce in one process: what is launched when, on an exchange made by hand."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.link import EmulatedLink
from allhands.mgwfbp.plan import Plan, one_per_gradient, single_bucket
from allhands.trace.events import Recorder
from allhands.train.merged import ddp as merged_ddp
from allhands.train.merged.buffers import cut_by_kind
from allhands.train.merged.exchange import DistributedExchange, EmulatedExchange
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.merged.times import StepTimes, record


class HandExchange:
    """Two ranks; the other one's share of each mean is `other`. Logs what is done.

    All-reduce k is on the link from 10 k to 10 k + `link_s`.
    """

    world_size = 2

    def __init__(self, other: float = 0.0) -> None:
        self.other, self.log, self.link_s = other, [], 5.0
        self.n_launched = 0

    def all_reduce(self, buffer, *, name, timed=False):
        self.log.append(f"launch {name}")
        start_s = 10.0 * self.n_launched
        self.n_launched += 1
        return HandPending(self, buffer, name, (start_s, start_s + self.link_s))

    def all_max(self, values):
        return list(values)

    def refuse_different(self, what, text):
        self.log.append(f"compare {what}")


class HandPending:
    def __init__(self, exchange, buffer, name, span_s) -> None:
        self.exchange, self.buffer, self.name, self.span_s = exchange, buffer, name, span_s

    def wait(self) -> None:
        self.exchange.log.append(f"wait {self.name}")
        self.buffer += self.exchange.other

    def times_s(self):
        return self.span_s


class Scales(nn.Module):
    """Four numbers, used in the order that is asked for; the last one used arrives first."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(i + 1)) for i in range(4))

    def forward(self, log: list[str] | None = None, which=(0, 1, 2, 3)) -> torch.Tensor:
        x = torch.ones(())
        for i in which:
            x = x * self.scales[i].sum()
            if log is not None:
                x.register_hook(lambda _, i=i: log.append(f"backward {i}"))
        return x


def made(plan: Plan, **options) -> tuple[Scales, HandExchange, MergedAllReduce]:
    model, exchange = Scales(), HandExchange()
    merged = MergedAllReduce(model, plan, exchange, **options)
    exchange.log.clear()
    return model, exchange, merged


def test_a_group_is_launched_in_backward_as_soon_as_it_is_complete():
    model, exchange, merged = made(Plan(((0, 0), (1, 2), (3, 3))))
    merged.backward(model(exchange.log))
    assert exchange.log == [
        "backward 3",
        "launch 0-0",
        "backward 2",
        "backward 1",
        "launch 1-2",
        "backward 0",
        "launch 3-3",
    ]
    exchange.log.clear()
    merged.finish()
    assert exchange.log == ["wait 0-0", "wait 1-2", "wait 3-3"]


def test_a_group_that_is_complete_early_waits_for_those_before_it():
    """Used in the order 3, 2, 1, 0, the gradient that the plan sends first comes last."""
    model, exchange, merged = made(one_per_gradient(4))
    merged.backward(model(exchange.log, which=(3, 2, 1, 0)))
    assert exchange.log == [
        *(f"backward {i}" for i in range(4)),
        *(f"launch {i}-{i}" for i in range(4)),
    ]


def test_groups_of_unused_parameters_are_launched_by_finish_in_order():
    model, exchange, merged = made(one_per_gradient(4))
    merged.backward(model(which=(0, 2, 3)))
    assert exchange.log == ["launch 0-0", "launch 1-1"]
    merged.finish()
    assert exchange.log[2:4] == ["launch 2-2", "launch 3-3"]


def test_without_any_backward_pass_zeros_are_sent():
    model, exchange, merged = made(single_bucket(4))
    exchange.other = 0.25
    merged.finish()
    assert exchange.log == ["launch 0-3", "wait 0-3"]
    assert all((p.grad == 0.25).all() for p in model.parameters())


def test_an_unused_parameter_does_not_send_what_it_sent_last_time():
    model, _, merged = made(single_bucket(4))
    for which in ((0, 1, 2, 3), (0, 2, 3)):
        model.zero_grad()
        model(which=which).backward()
        merged.finish()
    assert [p.grad.any().item() for p in model.scales] == [True, False, True, True]


def test_the_gradient_becomes_half_of_this_rank_s_and_the_other_s_share():
    model, exchange, merged = made(Plan(((0, 1), (2, 3))))
    exchange.other = 3.0
    local = torch.autograd.grad(model(), list(model.parameters()))
    merged.backward(model())
    merged.finish()
    assert all(
        torch.equal(p.grad, mine / 2 + 3.0)
        for p, mine in zip(model.parameters(), local, strict=True)
    )


def test_an_order_says_which_gradient_is_which():
    order = [f"scales.{i}" for i in (1, 3, 0, 2)]
    model, exchange, merged = made(one_per_gradient(4), order=order)
    merged.backward(model(exchange.log))
    assert merged.order == tuple(order)
    assert exchange.log == [
        *("backward 3", "backward 2", "backward 1", "launch 0-0", "launch 1-1"),
        *("backward 0", "launch 2-2", "launch 3-3"),
    ]


def test_after_close_backward_leaves_gradients_alone():
    model, exchange, merged = made(single_bucket(4))
    merged.close()
    model().backward()
    assert exchange.log == []


def test_a_model_without_trainable_parameters_has_nothing_to_send():
    model = Scales().requires_grad_(False)
    merged = MergedAllReduce(model, Plan(()), HandExchange(), timed=True, find_unused=True)
    merged.finish()
    assert all(p.grad is None for p in model.parameters())


def test_finish_is_needed_between_two_backward_passes():
    model, _, merged = made(single_bucket(4))
    merged.backward(model())
    with pytest.raises(RuntimeError, match=r"scales\.3 came twice .*no_sync"):
        model().backward()


def test_what_belongs_between_steps_is_refused_within_one():
    model, _, merged = made(single_bucket(4))
    with merged.no_sync():
        model().backward()
        with pytest.raises(RuntimeError, match="inside no_sync"):
            merged.finish()
    with pytest.raises(RuntimeError, match="middle of a step"):
        merged.replan(one_per_gradient(4))
    model().backward()
    with pytest.raises(RuntimeError, match="on their way"), merged.no_sync():
        pass
    merged.finish()
    merged.replan(one_per_gradient(4))
    assert merged.plan == one_per_gradient(4)


def test_an_exception_on_the_way_leaves_nothing_behind():
    model, exchange, merged = made(single_bucket(4))
    model().backward()
    exchange.other = "no number"
    with pytest.raises(TypeError):
        merged.finish()
    exchange.other = 0.0
    model.zero_grad()
    model().backward()
    merged.finish()
    assert all(torch.equal(p.grad, torch.autograd.grad(model(), p)[0] / 2) for p in model.scales)


def test_a_parameter_that_is_thawed_later_is_refused():
    model = Scales()
    model.scales[1].requires_grad_(False)
    merged = MergedAllReduce(model, single_bucket(3), HandExchange())
    model.scales[1].requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"frozen and are trained now: \['scales.1'\]"):
        merged.finish()


def test_a_sparse_gradient_is_refused_by_name():
    model = nn.Embedding(5, 2, sparse=True)
    MergedAllReduce(model, single_bucket(1), HandExchange())
    with pytest.raises(RuntimeError, match="gradient of weight is sparse"):
        model(torch.tensor([1])).sum().backward()


@pytest.mark.parametrize(
    ("plan", "order", "sentence"),
    [
        (single_bucket(3), None, "plan is for 3 gradients, but the model has 4"),
        (single_bucket(4), ["scales.0", "scales.1", "scales.2", "odd"], r"\['odd', 'scales.3'\]"),
        (single_bucket(5), [f"scales.{i}" for i in (0, 1, 2, 3, 3)], "comes twice"),
    ],
)
def test_a_plan_or_order_for_another_model_is_refused(plan, order, sentence):
    with pytest.raises(ValueError, match=sentence):
        MergedAllReduce(Scales(), plan, HandExchange(), order=order)


def test_a_plan_is_cut_where_the_type_changes():
    assert cut_by_kind(Plan(((0, 2), (3, 4))), "aabbb") == Plan(((0, 1), (2, 2), (3, 4)))
    assert cut_by_kind(Plan(()), "") == Plan(())


def test_times_and_events_of_a_step_by_hand():
    """Two groups; the second is launched at 7, while the first is on the link until 9."""
    times = StepTimes.of(1.0, (3.0, 6.0, 7.0), ((0, 0), (1, 2)), ((3.0, 9.0), (7.0, 12.0)), (4, 8))
    assert (times.ready_s, times.start_s, times.end_s) == ((3.0, 7.0), (3.0, 9.0), (9.0, 12.0))
    recorder = Recorder(rank=1, clock=lambda: 0.0)
    record(times, ((0, 0), (1, 2)), recorder)
    first_s = recorder.events[0].start_s
    assert [
        (event.what, event.name, round(event.start_s - first_s, 6), round(event.duration_s, 6))
        for event in recorder.events
    ] == [
        ("backward", "0-0", 0.0, 2.0),
        ("communicate", "0-0", 2.0, 6.0),
        ("backward", "1-2", 2.0, 4.0),
        ("wait", "1-2", 6.0, 2.0),
        ("communicate", "1-2", 8.0, 3.0),
    ]


def test_a_real_backward_pass_over_the_emulated_link_writes_the_events_of_the_link():
    """Where times are concerned, only what no delay can change: order, sums, the link's own law."""
    model, recorder = Scales(), Recorder()
    cost, plan = AffineCost(2e-3, 1e-5), Plan(((0, 1), (2, 3)))
    with EmulatedLink(cost) as link:
        merged = MergedAllReduce(model, plan, EmulatedExchange(link), recorder=recorder)
        merged.backward(model())
        merged.finish()
    local = torch.autograd.grad(model(), list(model.parameters()))
    assert all(map(torch.equal, [p.grad for p in model.parameters()], local))
    sent = [event for event in recorder.events if event.what == "communicate"]
    assert [event.name for event in sent] == ["0-1", "2-3"]
    assert [event.duration_s for event in sent] == pytest.approx([cost(4 * 7), cost(4 * 3)])
    assert sent[1].start_s >= sent[0].end_s - 1e-9
    assert merged.last_times.n_bytes == (28, 12)


def test_the_emulated_link_refuses_a_gpu():
    """Its times begin when the program asks; a GPU has the gradient later."""
    on_gpu = SimpleNamespace(is_cuda=True)
    with EmulatedLink(AffineCost(0.0, 0.0)) as link, pytest.raises(ValueError, match="on a CPU"):
        EmulatedExchange(link).all_reduce(on_gpu, name="0-0")


def test_a_distributed_exchange_without_a_process_group_says_what_to_do():
    with pytest.raises(RuntimeError, match="init_process_group"):
        DistributedExchange()


def test_ddp_caps_are_the_bytes_of_the_groups():
    order = [f"scales.{i}" for i in (3, 2, 1, 0)]
    caps = merged_ddp.bucket_caps_mib(Scales(), Plan(((0, 0), (1, 3))), order)
    assert [int(cap * 2**20) for cap in caps] == [16, 24]


def test_a_pytorch_without_a_list_of_bucket_sizes_is_told(monkeypatch):
    class OldDDP:
        def __init__(self, module, bucket_cap_mb=None) -> None: ...

    monkeypatch.setattr(merged_ddp, "DistributedDataParallel", OldDDP)
    with pytest.raises(
        NotImplementedError, match=r"PyTorch 2\.13 or later, or use MergedAllReduce"
    ):
        merged_ddp.ddp_with_plan(Scales(), single_bucket(4), [])


def test_what_ddp_cannot_run_is_refused():
    order = [f"scales.{i}" for i in (3, 2, 1, 0)]
    with pytest.raises(ValueError, match="find_unused=True"):
        merged_ddp.ddp_with_plan(Scales(), single_bucket(4), order, find_unused_parameters=True)
    with pytest.raises(ValueError, match="a plan for 3 and 4 names"):
        merged_ddp.ddp_with_plan(Scales(), single_bucket(3), order)
    mixed = Scales()
    mixed.scales[0].data = mixed.scales[0].data.double()
    with pytest.raises(ValueError, match="2 kinds of parameters"):
        merged_ddp.ddp_with_plan(mixed, single_bucket(4), order)
