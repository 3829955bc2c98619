"""The shape of small trainers of language models: all at the top, ranks if there are any."""

import os
from contextlib import nullcontext

import numpy as np
import torch
from nets import Net
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir, resume, grad_clip, accumulate, batch, length = "out", False, 1.0, 8, 12, 256
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl")
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{ddp_local_rank}"
    torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    accumulate //= ddp_world_size
else:
    master_process, seed_offset, device = True, 0, "cuda"
if master_process:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + seed_offset)
context = nullcontext() if device == "cpu" else torch.autocast("cuda", torch.float16)


def get_batch(split):
    data = np.memmap(f"{split}.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - length, (batch,))
    x = torch.stack([torch.from_numpy(data[i : i + length].astype(np.int64)) for i in starts])
    return x.pin_memory().to(device, non_blocking=True)


model = Net()
if resume:
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
model.to(device)
scaler = torch.amp.GradScaler("cuda")
optimizer = model.configure_optimizers(device)
model = torch.compile(model)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank])


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [model(get_batch("val"))[1].item() for _ in range(20)]
    model.train()
    return sum(losses) / len(losses)


if master_process:
    import wandb

    wandb.init(project="mine")
raw_model = model.module if ddp else model
x = get_batch("train")
for step in range(1000):
    if step % 100 == 0 and master_process:
        print(f"step {step}: {estimate_loss():.4f}")
        torch.save({"model": raw_model.state_dict()}, os.path.join(out_dir, "ckpt.pt"))
    for micro in range(accumulate):
        if ddp:
            model.require_backward_grad_sync = micro == accumulate - 1
        with context:
            loss = model(x)[1] / accumulate
        x = get_batch("train")
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0 and master_process:
        print(f"{step}: {loss.item() * accumulate:.4f}")
if ddp:
    destroy_process_group()
