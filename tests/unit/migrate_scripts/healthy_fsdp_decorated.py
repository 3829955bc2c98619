"""The shape of programs that decorate: functions that run on rank 0 only."""

import functools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import get_dataset
from model import Net
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapped(*a, **k):
        if dist.get_rank() == 0:
            return fn(*a, **k)

    return wrapped


@rank_zero_only
def say(*words):
    print(*words, flush=True)


@rank_zero_only
def keep(state, path):
    torch.save(state, path)


def validate(model, loader, device):
    model.eval()
    sums = torch.zeros(3).to(device)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            sums[0] += F.cross_entropy(out, y, reduction="sum")
            sums[1] += (out.argmax(1) == y).sum()
            sums[2] += len(y)
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    say(f"val loss {sums[0] / sums[2]:.3f} acc {sums[1] / sums[2]:.3f}")


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device(f"cuda:{local}")
    dist.init_process_group("nccl", device_id=device)
    train, val = get_dataset()
    samplers = DistributedSampler(train), DistributedSampler(val, shuffle=False)
    train_loader = DataLoader(train, 32, sampler=samplers[0])
    val_loader = DataLoader(val, 32, sampler=samplers[1])
    model = FSDP(
        Net(),
        auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=20000),
        device_id=device,
    )
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(3):
        samplers[0].set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            opt.zero_grad()
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            model.clip_grad_norm_(1.0)
            opt.step()
        validate(model, val_loader, device)
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        state = model.state_dict()
    keep(state, "net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
