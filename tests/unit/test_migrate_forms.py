"""`allhands check`: faults in less usual forms, and what is done by a function of another file."""

import json
import os
import subprocess
import sys

import pytest

from allhands.migrate import check, check_text, report
from allhands.migrate.rule import SEVERITIES

DDP = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
rate = 0.1 * dist.get_world_size()
sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x in loader:
        net(x).sum().backward()
dist.destroy_process_group()
"""


def rules_of(text: str, *severities: str) -> set[str]:
    answer = check_text(text)
    return {each.rule.rule_id for each in answer.of(*(severities or SEVERITIES))}


def edited(*edits: tuple[str, str]) -> str:
    text = DDP
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def test_about_the_base_there_is_nothing_to_say():
    assert rules_of(DDP) == set()


FAULTS = {
    "the sampler is made, and no loader has it": (
        "no-sampler",
        [("loader = DataLoader(data, sampler=sampler)", "loader = DataLoader(data, shuffle=True)")],
    ),
    "set_epoch of the other sampler": (
        "set-epoch-missing",
        [("    sampler.set_epoch", "    held_out.sampler.set_epoch"),
         ("loader =", "held_out = DataLoader(data, sampler=DistributedSampler(data))\nloader =")],
    ),
    "the state of FSDP on one rank": (
        "collective-on-some-ranks",
        [("torch.nn.parallel.DistributedDataParallel", "FSDP"),
         ("import os\n", "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"),
         ("dist.destroy", 'if dist.get_rank() == 0:\n    torch.save(net.state_dict(), "a")\n'
          "dist.destroy")],
    ),
    "a port in an f-string": (
        "fixed-port",
        [('dist.init_process_group("gloo")', "host, port = os.environ['H'], 29500\n"
          'dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}")')],
    ),
    "a port as text": (
        "fixed-port",
        [('dist.init_process_group("gloo")', "port = 29500\n"
          'os.environ["MASTER_PORT"] = str(port)\ndist.init_process_group("gloo")')],
    ),
    "a port in update": (
        "fixed-port",
        [('dist.init_process_group("gloo")',
          'os.environ.update(MASTER_PORT="29500")\ndist.init_process_group("gloo")')],
    ),
    "a mean of ratios in a function": (
        "mean-of-means",
        [("dist.destroy", """\
def mean(x):
    x = x.clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()
good = seen = 0
for x in loader:
    seen += len(x)
mean(good / seen)
dist.destroy""")],
    ),
    "the rank in the world in a device's name": (
        "device-by-world-rank",
        [("net =", 'device = torch.device(f"cuda:{dist.get_rank()}")\n'
          "torch.cuda.set_device(device)\nnet =")],
    ),
    "a mean of ratios in a tensor": (
        "mean-of-means",
        [("dist.destroy", """\
good = seen = 0
for x in loader:
    seen += len(x)
share = torch.tensor([good / seen])
dist.all_reduce(share)
dist.destroy""")],
    ),
    "a bar a rank": (
        "text-of-all-ranks",
        [("import os\n", "from tqdm import tqdm\n"), ("in loader", "in tqdm(loader)")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_another_form_is_found_as_itself(name):
    rule, edits = FAULTS[name]
    assert rules_of(edited(*edits)) == {rule}


NCCL = '"gloo"', '"nccl"'
SPEAKS = "dist.destroy", "for i in range(3):\n    print(i)\ndist.destroy"
HEALTHY = {
    "another optimizer has no scale": [
        ("        net(x).sum().backward()\n", """\
        scaler.scale(net(x).sum()).backward()
        scaler.step(first_optimizer)
        scaler.update()
        critic(x).sum().backward()
        second_optimizer.step()
"""),
        ("rate =", "scaler = torch.amp.GradScaler()\nrate ="),
    ],
    "other ranks have another print": [
        SPEAKS,
        ("net =", "if dist.get_rank() > 0:\n    import builtins\n    builtins.print = len\nnet ="),
    ],
    "other ranks write to nowhere": [
        SPEAKS,
        ("net =", "import sys\nif dist.get_rank() > 0:\n    sys.stdout = os.devnull\nnet ="),
    ],
    "data, not a checkpoint, is loaded": [
        NCCL, ("sampler =", 'data = torch.load("data.pt")\nsampler ='),
    ],
    "one rank comes first": [
        ("net =", 'with main_first():\n    torch.save(1, "x")\nnet ='),
    ],
}  # fmt: skip


def test_what_is_told_apart_would_else_be_found():
    for edits, rule in (
        ([SPEAKS], "text-of-all-ranks"),
        (
            [
                ("rate =", "scaler = torch.amp.GradScaler()\nrate ="),
                ("net(x).sum().backward()", "scaler.scale(net(x).sum()).backward()"),
                ("    for x in loader:\n", "    for x in loader:\n        optimizer.step()\n"),
            ],
            "step-beside-scaler",
        ),
        ([("net =", 'torch.save(1, "x")\nnet =')], "files-of-all-ranks"),
        (
            [
                ('"gloo"', '"nccl"'),
                ("sampler =", 'net.load_state_dict(torch.load("x"))\nsampler ='),
            ],
            "load-without-map",
        ),
    ):
        assert rules_of(edited(*edits)) == {rule}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_right_in_its_place_is_left_alone(name):
    assert rules_of(edited(*HEALTHY[name])) == set()


def test_functions_of_other_files_are_trusted_with_what_their_names_say():
    begun = edited(('dist.init_process_group("gloo")', "utils.init_distributed_mode()"))
    begun = begun.replace("torch.nn.Linear(1, 1)", "torch.nn.Linear(1, 1).cuda()")
    begun = begun.replace("dist.destroy_process_group()\n", "")
    assert rules_of(begun, "sure", "likely") == set()
    own = begun.replace("utils.init_distributed_mode()", 'dist.init_process_group("nccl")')
    assert rules_of(own, "sure", "likely") == {"device-missing"}
    plain = edited(("torch.nn.parallel.DistributedDataParallel(", "("))
    assert rules_of(plain, "sure", "likely") == {"model-not-wrapped"}
    wrapped = plain.replace("import os", "from mine import smart_ddp")
    assert rules_of(wrapped, "sure", "likely") == set()


def test_the_hook_is_known_under_another_name():
    text = 'import chainermn as mn\ncomm = mn.create_communicator("naive")\n'
    assert rules_of(text) == {"no-except-hook"}
    assert (
        rules_of("import chainermn.global_except_hook as hook\nhook._add_hook()\n" + text) == set()
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [("from accelerate import Accelerator", "Accelerate"), ("import lightning", "Lightning")],
)
def test_a_framework_that_makes_the_ranks_is_named_and_the_edits_are_not_shown(line, name):
    serial = """
import torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(data, shuffle=True):
    model(x).backward()
"""
    assert check_text(serial).findings
    answer = check_text(line + serial)
    assert answer.findings == ()
    assert f"{name} makes the ranks" in report(answer)
    assert "one device" not in report(answer)
    assert answer.as_dict()["started_by"] == name


def test_a_program_for_one_device_beside_others_is_left_alone(tmp_path):
    (tmp_path / "train.py").write_text(DDP, encoding="utf-8")
    alone = 'import torch\nif __name__ == "__main__":\n    torch.save(1, "a.pt")\n'
    (tmp_path / "before.py").write_text(alone, encoding="utf-8")
    assert check(tmp_path).findings == ()
    (tmp_path / "before.py").write_text("import train\n" + alone, encoding="utf-8")
    assert [each.path.name for each in check(tmp_path).of("sure")] == ["before.py"]


def test_the_proof_is_one_that_the_program_can_give():
    compare = "`allhands compare`"
    chainer = 'import chainermn\ncomm = chainermn.create_communicator("naive")\n'
    assert compare in report(check_text(chainer))
    for text in (DDP, edited(("    sampler.set_epoch(epoch)\n", ""))):
        said = " ".join(report(check_text(text)).split())
        assert "compare the losses of one rank and of two" in said
        assert compare not in said


def test_a_notebook_of_another_language_is_named(tmp_path):
    cell = {"cell_type": "code", "source": "x <- 3", "metadata": {}, "outputs": []}
    content = {"metadata": {"language_info": {"name": "R"}}, "cells": [cell]}
    (tmp_path / "mine.ipynb").write_text(json.dumps(content), encoding="utf-8")
    answer = check(tmp_path / "mine.ipynb")
    assert answer.exit_code == 2
    assert "a notebook in R" in answer.unread[0]


def test_code_that_the_terminal_cannot_show_is_shown_all_the_same(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(DDP.replace("sampler.set_epoch(epoch)", 'print("並列")'), encoding="utf-8")
    words = [sys.executable, "-c", "from allhands.cli import app; app()", "check", str(path)]
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "set-epoch-missing" in done.stdout
    assert "Traceback" not in done.stderr
