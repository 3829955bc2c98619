"""`allhands check`: the device, said in the usual ways: a text, a choice, a variable of either."""

import pytest

from allhands.migrate import check_text

RANKS = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
{said}
net = torch.nn.Linear(1, 1).to({device})
net = torch.nn.parallel.DistributedDataParallel(net)
rate = 0.1 * dist.get_world_size()
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x in loader:
        net(x.to({device})).sum().backward()
dist.destroy_process_group()
"""
ALONE = """\
import torch
{said}
model = torch.nn.Linear(2, 1)
model.to({device})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(range(4), shuffle=True):
    model(batch.to({device})).backward()
    optimizer.step()
"""
GPU = "torch.cuda.is_available()"
BRANCHES = 'if {}:\n    device = "{}"\nelse:\n    device = "cpu"'
ANY = {
    "a text": 'device = "cuda"',
    "a device": 'device = torch.device("cuda")',
    "a choice": f'device = "cuda" if {GPU} else "cpu"',
    "the choice the other way": f'device = "cpu" if not {GPU} else "cuda"',
    "a device of a choice": f'device = torch.device("cuda" if {GPU} else "cpu")',
    "two branches": BRANCHES.format(GPU, "cuda"),
    "one branch": f'device = "cpu"\nif {GPU}:\n    device = "cuda"',
    "an attribute": f'args.device = "cuda" if {GPU} else "cpu"\ndevice = args.device',
    "a function": f'def best():\n    return "cuda" if {GPU} else "cpu"\ndevice = best()',
}
FIXED = {name: said.replace('"cuda"', '"cuda:0"') for name, said in ANY.items()}
LOCAL = "int(os.environ['LOCAL_RANK'])"
RIGHT = {
    "of the rank": f'device = f"cuda:{{{LOCAL}}}" if {GPU} else "cpu"',
    "of the rank, in a branch": f'device = "cpu"\nif {GPU}:\n    device = f"cuda:{{{LOCAL}}}"',
    "of the rank, or the only one": f"""\
if dist.get_world_size() > 1:
    device = torch.device("cuda", {LOCAL})
else:
    device = "cuda:0" if {GPU} else "cpu\"""",
    "of the rank, or any": f"""\
ranks = int(os.environ.get("RANK", -1)) != -1
if ranks:
    device = f"cuda:{{{LOCAL}}}"
    torch.cuda.set_device(device)
else:
    device = "cuda" if {GPU} else "cpu"
kind = "cuda" if "cuda" in device else "cpu"
scaler = torch.amp.GradScaler(device=kind)""",
    "two words": f'device = torch.device("cuda", {LOCAL})',
    "chosen before": f'torch.cuda.set_device({LOCAL})\ndevice = "cuda" if {GPU} else "cpu"',
    "another accelerator": 'device = "mps" if torch.backends.mps.is_available() else "cpu"',
    "open": f'device = "cuda" if {GPU} else args.device',
    "two devices": f'device = "cuda:0" if {LOCAL} == 0 else "cuda:1"',
    "the beginning of a text": f'device = ("cuda:0" if {GPU} else "cpu")[:3]',
}


def with_ranks(said: str, device: str = "device") -> set[str]:
    answer = check_text(RANKS.format(said=said, device=device))
    return {each.rule.rule_id for each in answer.findings}


@pytest.mark.parametrize("name", ANY)
def test_cuda_without_a_number_is_gpu_0_on_every_rank(name):
    assert with_ranks(ANY[name]) == {"device-missing"}


@pytest.mark.parametrize("name", FIXED)
def test_a_number_is_the_same_on_every_rank(name):
    assert with_ranks(FIXED[name]) == {"device-fixed"}


@pytest.mark.parametrize("form", ["{}", "device={}"])
def test_no_variable_is_needed(form):
    choice = f'"cuda" if {GPU} else "cpu"'
    assert with_ranks("", form.format(choice)) == {"device-missing"}
    assert with_ranks("", form.format(choice.replace("cuda", "cuda:0", 1))) == {"device-fixed"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_device_of_the_rank_and_what_is_not_known_are_left_alone(name):
    assert with_ranks(RIGHT[name]) == set()


def edits_of_the_device(said: str, device: str = "device") -> list[str]:
    answer = check_text(ALONE.format(said=said, device=device))
    return [each.code.strip() for each in answer.findings if each.rule.rule_id == "edit-2-device"]


@pytest.mark.parametrize("said", [*ANY.values(), *FIXED.values()])
def test_the_edit_of_the_device_is_shown_once_where_the_device_is_said(said):
    (code,) = edits_of_the_device(said)
    assert code in said
    assert "cuda" in code or code == 'device = "cpu"'  # the branch that comes first


def test_the_edit_is_shown_at_each_line_that_says_it_again():
    assert len(edits_of_the_device("", '"cuda"')) == 2
    assert edits_of_the_device("", '"cpu"') == []
    assert edits_of_the_device('device = "cpu"') == []
    assert edits_of_the_device("dtype = torch.float64", "dtype") == []
