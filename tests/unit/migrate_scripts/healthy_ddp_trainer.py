"""The shape of PyTorch's tutorial series: a class Trainer, started with torchrun."""

import os

import torch
from numbers_data import Numbers
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def setup():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group(backend="nccl")


class Trainer:
    def __init__(self, model, loader, optimizer, path, use_amp):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model.to(self.local_rank)
        self.loader, self.optimizer, self.path, self.use_amp = loader, optimizer, path, use_amp
        self.epochs_run = 0
        if self.use_amp:
            self.scaler = torch.amp.GradScaler("cuda")
        if os.path.exists(path):
            self._load()
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def _load(self):
        snapshot = torch.load(self.path, map_location=f"cuda:{self.local_rank}")
        self.model.load_state_dict(snapshot["model"])
        self.epochs_run = snapshot["epochs"]
        print(f"on from epoch {self.epochs_run}")

    def _batch(self, source, targets):
        with torch.autocast("cuda", torch.float16, enabled=self.use_amp):
            loss = torch.nn.functional.mse_loss(self.model(source), targets)
        self.optimizer.zero_grad(set_to_none=True)
        if self.use_amp:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def _epoch(self, epoch):
        print(f"[{self.global_rank}] epoch {epoch}: {len(self.loader)} steps")
        self.loader.sampler.set_epoch(epoch)
        for source, targets in self.loader:
            self._batch(source.to(self.local_rank), targets.to(self.local_rank))

    def _save(self, epoch):
        torch.save({"model": self.model.module.state_dict(), "epochs": epoch}, self.path)
        print(f"epoch {epoch} is saved")

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self._epoch(epoch)
            if self.global_rank == 0 and epoch % 10 == 0:
                self._save(epoch)


def prepare(dataset, batch):
    return DataLoader(
        dataset,
        batch_size=batch,
        shuffle=False,
        pin_memory=True,
        sampler=DistributedSampler(dataset),
    )


def main(epochs, batch, path="snapshot.pt"):
    setup()
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    trainer = Trainer(model, prepare(Numbers(2048), batch), optimizer, path, use_amp=True)
    trainer.train(epochs)
    destroy_process_group()


if __name__ == "__main__":
    main(100, 32)
