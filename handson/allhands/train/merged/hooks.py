"""How are merged gradients really sent? One all-reduce for each group of a plan, during backward.

    merged = MergedAllReduce(model, plan, DistributedExchange(), order=gradients.names)
    for batch in batches:
        optimizer.zero_grad()
        merged.backward(loss(batch))      # groups leave as soon as they are complete
        merged.finish()                   # waits: now each .grad is the mean over all ranks
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

It uses public hooks of PyTorch only (`register_post_accumulate_grad_hook`). Each group has one flat
buffer; when a gradient is complete, it is copied into its slot, times 1 / world size, and `.grad`
becomes that slot: so gradients need no second memory, and nothing is copied back.

All-reduces are matched over the ranks by their order alone. So groups leave strictly in the order
of the plan: a group that is complete early waits for those before it. A gradient that backward does
not give (an unused parameter) is sent by `finish`, as zeros or as what `.grad` holds: a parameter
may be used on some ranks only.

Conventions: gradients are numbered in order of arrival, as in mgwfbp/plan.py. All ranks must start
from the same parameters. Between backward and `finish`, do not touch any `.grad`.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from allhands.mgwfbp.plan import Plan
from allhands.trace.events import Recorder
from allhands.train.merged.buffers import cut_by_kind, make_groups
from allhands.train.merged.exchange import Exchange
from allhands.train.merged.times import StepTimes, record
from allhands.train.stamps import stamps_for


@dataclass
class _Step:
    """What is known of the step that runs; empty between steps."""

    arrived: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)  # by backward passes under no_sync too
    marks: dict[int, object] = field(default_factory=dict)
    begin: object = None
    n_launched: int = 0


class MergedAllReduce:
    """All-reduces the gradients of `model` by `plan`, and makes them the mean over the ranks.

    plan: for all trainable parameters. order: their names in order of arrival, as `probe` gives
    them; None takes the reverse of their definition. A group whose parameters differ in type or
    device is cut there, because a buffer has one type; `plan` is what is left, and what runs.

    find_unused: a parameter that no rank used keeps the `.grad` it had (None, say), as under DDP's
    find_unused_parameters; this sends one more number a parameter with the last group. Without it,
    such a parameter gets zeros. recorder: gets `backward`, `wait` and `communicate` events of each
    group. timed: keep the times of the last step in `last_times` (always so with a recorder).

    Raises ValueError for a plan or an order that does not fit the model, and RanksDisagree, on all
    ranks, if the ranks have different plans.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        exchange: Exchange,
        *,
        order: Sequence[str] | None = None,
        find_unused: bool = False,
        recorder: Recorder | None = None,
        timed: bool = False,
    ) -> None:
        self.exchange, self.find_unused, self.recorder = exchange, find_unused, recorder
        self._timed = timed or recorder is not None
        self.last_times: StepTimes | None = None
        named = dict(model.named_parameters())
        self._named = {name: p for name, p in named.items() if p.requires_grad}
        self._frozen = {name: p for name, p in named.items() if not p.requires_grad}
        self._stamps = stamps_for(next((p.device for p in self._named.values()), "cpu"))
        self._lock = threading.Lock()  # backward has one thread a device
        self._syncing = True
        self._step = _Step()
        self.replan(plan, order)
        self._handles = [
            p.register_post_accumulate_grad_hook(self._hook(name))
            for name, p in self._named.items()
        ]

    @property
    def is_timed(self) -> bool:
        return self._timed

    def replan(self, plan: Plan, order: Sequence[str] | None = None) -> None:
        """Use another plan from the next step on; between steps only, on all ranks. As above."""
        if self._step.used or not self._syncing:
            raise RuntimeError(
                "Cannot change the plan in the middle of a step: call finish() before."
            )
        names = tuple(reversed(self._named)) if order is None else tuple(order)
        if sorted(names) != sorted(self._named):
            odd = sorted(set(names) ^ set(self._named)) or "a name that comes twice"
            raise ValueError(
                "The order must name each trainable parameter once; it differs from the model in "
                f"{odd}. Probe this model again."
            )
        if plan.n_gradients != len(names):
            raise ValueError(
                f"The plan is for {plan.n_gradients} gradients, but the model has {len(names)} "
                "trainable parameters. Make the plan for this model."
            )
        parameters = [self._named[name] for name in names]
        plan = cut_by_kind(plan, [(p.dtype, p.device) for p in parameters])
        layout = [(name, p.dtype, *p.shape) for name, p in zip(names, parameters, strict=True)]
        self.exchange.refuse_different("plan", repr((plan.groups, layout, self.find_unused)))
        self.plan, self.order, self._parameters = plan, names, parameters
        self._number = {name: i for i, name in enumerate(names)}
        n_extra = len(names) if self.find_unused else 0
        self._groups, self._slots, self._used_by = make_groups(self.plan, parameters, n_extra)
        self._group_of = [group for group in self._groups for _ in range(group.n_gradients)]
        self._begin_step()

    def backward(self, loss: torch.Tensor) -> None:
        """Call loss.backward(), and note when it started: for events and times alone."""
        self._step.begin = self._stamps.mark() if self._timed and self._syncing else None
        loss.backward()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in this block only add to `.grad`; the next one after it sends the sum.

        Divide the loss by the number of passes for the mean over them.
        """
        if self._step.arrived:
            raise RuntimeError(
                "Cannot enter no_sync() while gradients are on their way: call finish() before."
            )
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def finish(self) -> None:
        """Send what is left, wait for all, and leave in each `.grad` the mean over the ranks.

        All ranks call it once a step, after the (last) backward pass, before clipping and the step
        of the optimizer.
        """
        if not self._syncing:
            raise RuntimeError("finish() was called inside no_sync(): leave that block first.")
        if thawed := [name for name, p in self._frozen.items() if p.requires_grad]:
            raise RuntimeError(
                f"These parameters were frozen and are trained now: {thawed}. Make a new plan and "
                "a new MergedAllReduce."
            )
        try:
            self._send_the_rest()
            for group in self._groups:
                group.pending.wait()
            self._hand_over()
            if self._timed and self._groups:
                self._keep_times()
        finally:
            self._begin_step()

    def close(self) -> None:
        """Remove the hooks: backward leaves the gradients as they are."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, name: str):
        return lambda parameter: self._arrive(name, parameter)

    def _begin_step(self) -> None:
        self._step = _Step()
        for group in self._groups:
            group.missing, group.pending = group.n_gradients, None

    def _arrive(self, name: str, parameter: nn.Parameter) -> None:
        """A gradient is complete: called by backward."""
        with self._lock:
            i = self._number[name]
            self._step.used.add(i)
            if not self._syncing:
                return
            if i in self._step.arrived:
                raise RuntimeError(
                    f"The gradient of {name} came twice before finish(). Call finish() after each "
                    "backward pass, accumulate under no_sync(), and use checkpoint with "
                    "use_reentrant=False."
                )
            self._fill(i)
            self._launch_complete()

    def _fill(self, i: int) -> None:
        """Put gradient i into its slot, as its share of the mean."""
        parameter, slot = self._parameters[i], self._slots[i]
        if parameter.grad is None:
            slot.zero_()
        elif parameter.grad.layout != torch.strided:
            raise RuntimeError(
                f"The gradient of {self.order[i]} is sparse, and cannot be merged: use "
                "sparse=False for its embedding."
            )
        else:
            torch.mul(parameter.grad, 1.0 / self.exchange.world_size, out=slot)
            parameter.grad = slot
        if self._timed:
            self._step.marks[i] = self._stamps.mark()
        self._step.arrived.add(i)
        self._group_of[i].missing -= 1

    def _launch_complete(self) -> None:
        """Start complete groups in the order of the plan, up to the first that is not."""
        step = self._step
        while step.n_launched < len(self._groups) and not self._groups[step.n_launched].missing:
            group = self._groups[step.n_launched]
            step.n_launched += 1
            if self.find_unused and step.n_launched == len(self._groups):
                used = [float(i in step.used) for i in range(len(self._parameters))]
                self._used_by.copy_(torch.tensor(used))
            group.pending = self.exchange.all_reduce(
                group.buffer, name=group.name, timed=self._timed
            )

    @torch.no_grad()
    def _send_the_rest(self) -> None:
        with self._lock:
            for i in range(len(self._parameters)):
                if i not in self._step.arrived:
                    self._fill(i)
            self._launch_complete()

    def _hand_over(self) -> None:
        """Give each parameter its slot; most have it since they arrived."""
        used = self._used_by.tolist() if self.find_unused and self._groups else None
        for i, (parameter, slot) in enumerate(zip(self._parameters, self._slots, strict=True)):
            if parameter.grad is None and (used is None or used[i]):
                parameter.grad = slot

    def _keep_times(self) -> None:
        marks = [self._step.marks[i] for i in range(len(self._parameters))]
        begin = [] if self._step.begin is None else [self._step.begin]
        times_s = self._stamps.read(begin + marks)
        self.last_times = StepTimes.of(
            min(times_s),
            times_s[len(begin) :],
            self.plan.groups,
            [group.pending.times_s() for group in self._groups],
            [group.n_bytes for group in self._groups],
        )
        if self.recorder is not None:
            record(self.last_times, self.plan.groups, self.recorder)
