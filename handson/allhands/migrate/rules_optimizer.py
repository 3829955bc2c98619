"""Faults of the update: gradients that are not shared, scaled in a wrong order (rule.py)."""

import re
from collections.abc import Iterator

from allhands.migrate.facts import Call, Facts, Value
from allhands.migrate.naming import DDP, MODEL_PARALLEL, REDUCTIONS, SAME_BATCH, SHARDED, WRAPPERS
from allhands.migrate.rule import Rule, Spot, at

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
WRAPS = re.compile(  # a function of another file that may wrap the model
    r"(?:^|_)(?:ddp|fsdp|wrap)|parallel(?:ize|_model)|distribute_model|prepare_model", re.IGNORECASE
)
LAB3 = "notebook lab3_mixedprec"
DDP_PAGE = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
AMP_PAGE = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"


def is_scaler(call: Call) -> bool:
    """A method of a GradScaler."""
    owner = call.receiver
    return owner is not None and (owner.made_by("GradScaler") or owner.text.endswith("scaler"))


def not_wrapped(facts: Facts) -> Iterator[Spot]:
    """Ranks that train, and never talk about gradients."""
    if facts.mentioned(*WRAPPERS, *MODEL_PARALLEL, *REDUCTIONS, "register_comm_hook", "reducer"):
        return
    if not facts.mentioned("init_process_group"):
        return
    if any(WRAPS.search(each.rpartition(".")[2]) for each in facts.imports.values()):
        return
    for call in facts.find("backward"):
        if not call.args and (call.loops or call.function):
            yield at(call)
            return


def not_multi_node(facts: Facts) -> Iterator[Spot]:
    """A ChainerMN program with an optimizer of one process."""
    if not facts.mentioned("create_communicator") or facts.mentioned(
        *("create_multi_node_optimizer", "allreduce_grad", "multi_node_mean_grad"),
        *(*SAME_BATCH, "send", "recv", "pseudo_connect", "multi_node_mean"),
        *("allreduce", "Allreduce", "allreduce_obj"),
    ):
        return
    loops = any(call.loops for call in facts.find("backward", "update"))
    if not loops and not facts.mentioned("StandardUpdater", "ParallelUpdater"):
        return
    for call in facts.find("setup"):
        if call.receiver is not None and call.receiver.made_by(*_chainer_optimizers(facts)):
            yield at(call)
            return


def _chainer_optimizers(facts: Facts) -> set[str]:
    return {call.short for call in facts.calls if call.of("chainer.optimizers")}


def thrown_away(facts: Facts) -> Iterator[Spot]:
    """The wrapped thing is made, and the plain one is used."""
    for call in facts.find(*DDP, "create_multi_node_optimizer", "DistributedOptimizer"):
        if call.short == "DistributedOptimizer" and not call.of("horovod"):
            continue
        name = call.targets[0] if len(call.targets) == 1 else ""
        if call.expects_error:
            continue
        if call.bare:
            yield at(call, "its result is not kept")
        elif name and "." not in name and facts.reads.get(name, 0) == 0:
            yield at(call, f"{name} is not used afterwards")


def fsdp_late(facts: Facts) -> Iterator[Spot]:
    """An optimizer of the parameters that FSDP then replaces."""
    for wrap in facts.find("FullyShardedDataParallel"):
        name = wrap.arg(0, "module").text
        for call in facts.calls:
            owners = [c.receiver for c in call.arg(0).origins if c.short == "parameters"]
            same = name and any(owner is not None and owner.text == name for owner in owners)
            before = call.order < wrap.order and call.function == wrap.function
            if same and before and call.of("torch.optim") and call.together(wrap):
                yield at(call, f"FSDP takes the parameters in line {wrap.line}")


def no_broadcast(facts: Facts) -> Iterator[Spot]:
    """Horovod shares gradients, and nobody has shared the first parameters."""
    if facts.mentioned(
        *("broadcast_parameters", "broadcast_variables", "TorchState", "broadcast_object"),
        *("BroadcastGlobalVariablesCallback", "BroadcastGlobalVariablesHook", "KerasState"),
        *("broadcast_global_variables", "load_model", "TensorFlowKerasState"),
    ):
        return
    for call in facts.find("DistributedOptimizer", root="horovod"):
        yield at(call)


def hand_made(facts: Facts) -> Iterator[Spot]:
    """Gradients are shared by hand, and the first parameters may differ."""
    if facts.mentioned(*WRAPPERS) or facts.mentioned("broadcast", "manual_seed", "load_state_dict"):
        return
    if facts.mentioned("broadcast_coalesced", "bcast", "Bcast", "manual_seed_all", "seed"):
        return
    for call in facts.find("all_reduce", "all_reduce_coalesced", root="torch.distributed"):
        mine = call.arg(0, "tensor").text.removesuffix(".data").endswith(".grad")
        if mine and "group" not in call.keywords:
            yield at(call)
            return


def _steps_of(facts: Facts, call: Call) -> list[Call]:
    """Calls of the same step: same function and same loop."""
    return [
        other
        for other in facts.calls
        if other.function == call.function
        and [loop.line for loop in other.loops] == [loop.line for loop in call.loops]
    ]


def clip_scaled(facts: Facts) -> Iterator[Spot]:
    """Gradients are cut while they still carry the loss scale."""
    for step in facts.find("step"):
        if not is_scaler(step):
            continue
        same = _steps_of(facts, step)
        for clip in same:
            if clip.short in CLIPS and clip.order < step.order and clip.together(step):
                before = [c for c in same if c.short == "unscale_" and c.order < clip.order]
                back = [c for c in same if c.short == "backward" and c.order < clip.order]
                last = back[-1].order if back else 0
                if not any(c.order > last for c in before):
                    yield at(clip)


def step_beside(facts: Facts) -> Iterator[Spot]:
    """The optimizer steps although the loss is scaled."""
    scaled = [c for c in facts.find("scale") if is_scaler(c)]
    if not scaled:
        return
    for call in facts.find("step"):
        owner = call.receiver
        if owner is None or is_scaler(call) or not is_optimizer(owner):
            continue
        same = _steps_of(facts, call)
        others = [each.arg(0).text for each in same if each.short == "step" and is_scaler(each)]
        alone = not call.loops and not call.function  # lines of a notebook, one after the other
        if alone or (others and owner.text not in others):
            continue  # another optimizer, whose loss is not scaled
        if any(each in same and each.together(call) for each in scaled):
            yield at(call)


def is_optimizer(owner: Value) -> bool:
    """Whether a value is an optimizer of PyTorch, by its maker or its name."""
    return any(call.of("torch.optim") for call in owner.origins) or owner.text.lower().endswith(
        ("optimizer", "optim", "opt")
    )


def no_update(facts: Facts) -> Iterator[Spot]:
    """The loss scale never changes."""
    steps = [call for call in facts.find("step") if is_scaler(call)]
    if steps and not any(is_scaler(call) for call in facts.find("update")):
        yield at(steps[0])


def one_rank_forward(facts: Facts) -> Iterator[Spot]:
    """DDP's forward pass on some ranks only."""
    for call in facts.calls:
        wrapped = call.receiver is None and any(
            maker.short in (*DDP, *SHARDED) for maker in _called(facts, call)
        )
        if wrapped and call.ranks == "first" and call.reached:
            yield at(call)
            return


def _called(facts: Facts, call: Call) -> list[Call]:
    """The makers of the thing that is called, if its name is that of a wrapped model."""
    return [
        maker
        for maker in facts.find(*DDP, *SHARDED)
        if call.name in maker.targets and call.function == maker.function and call.name
    ]


def unused(facts: Facts) -> Iterator[Spot]:
    """DDP looks for unused parameters in every step."""
    for call in facts.find(*DDP):
        if call.arg(99, "find_unused_parameters").const is True:
            yield at(call)


def not_scaled(facts: Facts) -> Iterator[Spot]:
    """Batch size and rate are those of one process."""
    if facts.scaled or facts.mentioned("lr_scaler", "scale_lr", "linear_scaling", "warmup_epochs"):
        return
    wraps = [*facts.find(*DDP, reached=True), *facts.find("create_multi_node_optimizer")]
    wraps += facts.find("DistributedOptimizer", root="horovod")
    if wraps and facts.mentioned("backward", "StandardUpdater", "update", "Trainer"):
        yield at(wraps[0])


OPTIMIZER = (
    Rule(
        "model-not-wrapped",
        "likely",
        "torch",
        "The ranks train, and never share a gradient",
        "The process group is made, but the model is not wrapped: N programs train side by side, "
        "each on its part of the data.",
        "model = DistributedDataParallel(model, device_ids=[local_rank]), after model.to(device).",
        DDP_PAGE,
        not_wrapped,
    ),
    Rule(
        "optimizer-not-multi-node",
        "likely",
        "chainer",
        "The optimizer is not a multi-node optimizer",
        "Each rank updates with its own gradient: N models drift apart.",
        "optimizer = chainermn.create_multi_node_optimizer(optimizer, comm), before setup.",
        "notebook lab2_dataparallel, edit 4",
        not_multi_node,
    ),
    Rule(
        "wrapper-unused",
        "sure",
        "all",
        "The parallel version is made, and then not used",
        "Wrapping gives back a new object. The old one does not share gradients.",
        "Keep the result, and use it: model = DistributedDataParallel(model), or "
        "optimizer = create_multi_node_optimizer(optimizer, comm).",
        DDP_PAGE,
        thrown_away,
    ),
    Rule(
        "optimizer-before-fsdp",
        "sure",
        "torch",
        "The optimizer holds parameters that FSDP replaces",
        "FSDP makes new, flat parameters; the optimizer would update the old ones.",
        "Wrap the model first, then make the optimizer.",
        "https://docs.pytorch.org/docs/stable/fsdp.html",
        fsdp_late,
    ),
    Rule(
        "no-broadcast",
        "sure",
        "horovod",
        "The ranks begin with different parameters",
        "Horovod shares gradients only. Without a broadcast every rank trains a model of its own.",
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0), and the optimizer's state.",
        "https://horovod.readthedocs.io/en/stable/pytorch.html",
        no_broadcast,
    ),
    Rule(
        "hand-made-no-broadcast",
        "likely",
        "torch",
        "Gradients are shared by hand, first parameters are not",
        "The same mean gradient moves models that were different from the beginning: they stay so.",
        "dist.broadcast every parameter from rank 0 before the first step, or the same seed.",
        "https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html",
        hand_made,
    ),
    Rule(
        "clip-before-unscale",
        "sure",
        "torch horovod",
        "Gradients are clipped while they carry the loss scale",
        "The norm is too large by the loss scale (65536 at the start): the limit cuts it all away.",
        "scaler.unscale_(optimizer) after backward, then clip, then scaler.step.",
        LAB3 + "; " + AMP_PAGE,
        clip_scaled,
    ),
    Rule(
        "step-beside-scaler",
        "sure",
        "torch horovod",
        "optimizer.step() although the loss is scaled",
        "The gradients still carry the loss scale, and nobody looks for inf and nan.",
        "scaler.step(optimizer) and scaler.update(), in place of optimizer.step().",
        LAB3 + "; " + AMP_PAGE,
        step_beside,
    ),
    Rule(
        "scaler-without-update",
        "sure",
        "torch horovod",
        "scaler.update() is missing",
        "PyTorch raises in the second step: step() has already been called since the last update.",
        "scaler.update() after scaler.step(optimizer), once a step.",
        LAB3 + "; " + AMP_PAGE,
        no_update,
    ),
    Rule(
        "forward-on-one-rank",
        "likely",
        "torch",
        "The wrapped model runs on rank 0 only",
        "DDP's forward pass may send buffers (batch normalisation), FSDP's sends parameters: the "
        "other ranks are not there, and rank 0 waits.",
        "Let all ranks evaluate, or call the model inside: model.module(x) under DDP.",
        "notebook bug2_singlegpu",
        one_rank_forward,
    ),
    Rule(
        "unused-parameters",
        "look",
        "torch",
        "find_unused_parameters=True costs a search in every step",
        "DDP goes through the whole graph after each forward pass. Most models do not need it.",
        "Leave it away, unless a branch of the model is really unused in some steps.",
        DDP_PAGE,
        unused,
    ),
    Rule(
        "rate-not-scaled",
        "look",
        "all",
        "Batch size and learning rate are those of one process",
        "The batch of all ranks together has grown N times. The same rate then learns less in an "
        "epoch, and the result differs from one device.",
        "Choose: divide the batch by the ranks (same answer), or scale the rate (larger batch).",
        "notebook lab2_dataparallel, edit 7",
        not_scaled,
    ),
)
