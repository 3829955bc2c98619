"""The shape of FSDP examples: the state is gathered by all ranks, and written by one."""

import os

import torch
import torch.distributed as dist
from nets import Net
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data.distributed import DistributedSampler


def train_epoch(model, rank, loader, optimizer, epoch, sampler=None):
    local_rank = int(os.environ["LOCAL_RANK"])
    sums = torch.zeros(2).to(local_rank)
    if sampler:
        sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch["source"].to(local_rank))
        loss.backward()
        optimizer.step()
        sums[0] += loss.detach()
        sums[1] += len(batch)
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"epoch {epoch}: {sums[0] / sums[1]:.4f}")


def main(args, data):
    local_rank = int(os.environ["LOCAL_RANK"])
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    sampler = DistributedSampler(data, rank=rank, num_replicas=world_size, shuffle=True)
    dist.init_process_group("nccl")
    options = {"batch_size": args.batch, "sampler": sampler, "shuffle": False}
    loader = torch.utils.data.DataLoader(data, **options)
    torch.cuda.set_device(local_rank)
    model = FSDP(Net(), device_id=torch.cuda.current_device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train_epoch(model, rank, loader, optimizer, epoch, sampler=sampler)
        if args.save:
            policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
                state = model.state_dict()
            if rank == 0:
                torch.save(state, f"model-{epoch}.pt")
    dist.barrier()
    dist.destroy_process_group()
