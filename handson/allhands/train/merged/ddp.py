"""How does PyTorch's own DDP run a plan? Through the sizes of its buckets.

DistributedDataParallel closes a bucket when it holds its cap or more. With one cap a group, equal
to the group's bytes, its buckets are the groups. PyTorch 2.13 has such a list of caps.

DDP lays out its first buckets by the order of definition, and again in the order of arrival after
the first backward pass (with static_graph after the second): the plan holds from then on. Do not
time the steps before.
"""

import inspect
from collections.abc import Sequence

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allhands.mgwfbp.plan import Plan

MIB = 2**20


def bucket_caps_mib(model: nn.Module, plan: Plan, order: Sequence[str]) -> list[float]:
    """Return the cap of each bucket in MiB, (groups,); times 2**20 each is a whole number of bytes.

    order: names of the trainable parameters in order of arrival. Raises ValueError if plan, order
    and model do not fit, or for parameters of several types, of which DDP makes buckets apart.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if sorted(order) != sorted(parameters) or plan.n_gradients != len(parameters):
        raise ValueError(
            f"Plan and order must be of the model's {len(parameters)} trainable parameters; saw a "
            f"plan for {plan.n_gradients} and {len(order)} names. Probe this model again."
        )
    kinds = {(p.dtype, p.device) for p in parameters.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"DDP makes buckets apart for each type and device, and the model has {len(kinds)} "
            "kinds of parameters, so its buckets cannot follow the plan. Use MergedAllReduce."
        )
    sizes = [parameters[name].numel() * parameters[name].element_size() for name in order]
    return [sum(sizes[first : last + 1]) / MIB for first, last in plan.groups]


def ddp_with_plan(
    model: nn.Module, plan: Plan, order: Sequence[str], **options
) -> DistributedDataParallel:
    """Wrap `model` in DDP whose buckets are the groups of `plan`. options: DDP's own.

    Raises NotImplementedError where the installed PyTorch has no list of caps, and ValueError for
    `find_unused_parameters=True`, under which DDP never lays its buckets out in order of arrival.
    """
    if "bucket_cap_mb_list" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        raise NotImplementedError(
            "This PyTorch has one bucket size for all (bucket_cap_mb): its DDP cannot run a plan. "
            "Install PyTorch 2.13 or later, or use MergedAllReduce, which needs no such option."
        )
    if options.get("find_unused_parameters"):
        raise ValueError(
            "With find_unused_parameters=True DDP keeps its buckets in the order of definition, so "
            "they cannot follow a plan. Use MergedAllReduce with find_unused=True."
        )
    caps_mib = bucket_caps_mib(model, plan, order)
    return DistributedDataParallel(model, bucket_cap_mb_list=caps_mib, **options)
