"""`allhands check`: in which forms does a program ask for its rank, and how do ranks leave?

Each form is tried twice. A collective inside it is a fault; a file written inside it is none.
"""

import pytest

from allhands.migrate import check_text

IMPORTS = """\
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import get_rank as me, get_world_size as n_ranks
from elsewhere import begin, rank_zero_only
dist.init_process_group("gloo")
"""
HANGS, WRITES = "dist.barrier()", 'torch.save(1, "model.pt")'
ON_FIRST = {
    "two names at once": "rank, size = me(), n_ranks()\nif rank == 0:\n    {}",
    "what another file gives": "rank, size = begin()\nif rank == 0:\n    {}",
    "a context of another file": "with begin() as (rank, size):\n    if rank == 0:\n        {}",
    "walrus": "if (r := me()) == 0:\n    {}",
    "match": "match me():\n    case 0:\n        {}\n    case _:\n        pass",
    "the rest of a match": "match me():\n    case 0:\n        pass\n    case _:\n        {}",
    "and": "me() == 0 and {}",
    "or": "me() != 0 or {}",
    "ternary": "{} if me() == 0 else None",
    "a flag, if there are ranks": "a = me() == 0 if dist.is_initialized() else True\nif a:\n    {}",
    "while": "while me() == 0:\n    {}\n    break",
    "comprehension": "[{} for i in range(3) if me() == 0]",
    "lambda": "do = lambda: {}\nif not me():\n    do()",
    "flag": "main = me() == 0\nlog = main and os.environ.get('LOG')\nif log:\n    {}",
    "asked many times": (
        "def chief():\n    return me() == 0\n"
        "a, b, c, d = chief(), chief(), chief(), chief()\nif chief():\n    {}"
    ),
    "inner function": (
        "def run():\n    me = me()\n    def inner():\n        if me == 0:\n            {}\n"
        "    inner()\nrun()"
    ),
    "inner function that nobody calls here": (
        "def run(trainer):\n    def save(epoch):\n        if me() == 0:\n            {}\n"
        "    trainer.extend(save)\n"
    ),
    "a name that says it": (
        "def is_master(opt):\n    return opt.number\nif is_master(begin()):\n    {}"
    ),
    "spawned": "def work(i, n):\n    if i == 0:\n        {}\nmp.spawn(work, args=(2,), nprocs=2)",
    "an option": (
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--node-id', default=int(os.environ.get('RANK', 0)))\n"
        "if p.parse_args().node_id == 0:\n    {}"
    ),
    "property": (
        "class Trainer:\n    def __init__(self):\n        self.me = me()\n    @property\n"
        "    def chief(self):\n        return self.me == 0\n    def run(self):\n"
        "        if self.chief:\n            {}\nTrainer().run()"
    ),
    "set by the base class": (
        "class Base:\n    def __init__(self):\n        self.me = me()\n"
        "class Trainer(Base):\n    def __init__(self):\n        super().__init__()\n"
        "    def run(self):\n        if self.me == 0:\n            {}\nTrainer().run()"
    ),
    "decorator of another file": "@rank_zero_only\ndef run():\n    {}\nrun()",
    "own decorator": (
        "def only(f):\n    def inner(*a):\n        if me() == 0:\n            return f(*a)\n"
        "    return inner\n@only\ndef run():\n    {}\nrun()"
    ),
    "own decorator that leaves": (
        "def only(f):\n    def inner(*a):\n        if me() != 0:\n            return None\n"
        "        return f(*a)\n    return inner\n@only\ndef run():\n    {}\nrun()"
    ),
}
LEAVES = {
    "return": "def run(rank):\n    if rank:\n        return\n    {}\nrun(me())",
    "a flag": "def run(main):\n    if not main:\n        return\n    {}\nrun(me() == 0)",
    "exit": "if me() > 0:\n    sys.exit()\n{}",
    "SystemExit": "if me() > 0:\n    raise SystemExit\n{}",
}
ON_ALL = {
    "is there a rank": "if os.environ.get('RANK'):\n    {}",
    "is the option given": "def run(args):\n    if args.local_rank:\n        {}\nrun(begin())",
    "a number that counts": "for rank in range(3):\n    if rank == 0:\n        {}",
    "a path with the rank": "if os.path.exists(f'{me()}.log'):\n    {}",
    "the rank of a tensor": "rank = torch.ones(2).dim()\nif rank == 0:\n    {}",
    "an error": "if me() > 8:\n    raise ValueError('too many')\n{}",
}


def found(form: str, inside: str) -> set[str]:
    """The rules that find something in a form."""
    answer = check_text(IMPORTS + form.replace("{}", inside) + "\n")
    return {each.rule.rule_id for each in answer.of("sure", "likely")}


@pytest.mark.parametrize("form", ON_FIRST.values(), ids=ON_FIRST)
def test_a_form_that_asks_for_the_rank_is_known_as_one(form):
    assert found(form, HANGS) == {"collective-on-some-ranks"}
    assert found(form, WRITES) == set()


@pytest.mark.parametrize("form", LEAVES.values(), ids=LEAVES)
def test_ranks_that_leave_are_missed_later(form):
    assert found(form, HANGS) == {"ranks-leave-early"}
    assert found(form, WRITES) == set()


@pytest.mark.parametrize("form", ON_ALL.values(), ids=ON_ALL)
def test_what_only_looks_like_a_rank_is_none(form):
    assert found(form, HANGS) == set()


def test_roles_in_functions_of_their_own_meet():
    text = """\
def lead():
    return dist.barrier()
def follow():
    return dist.barrier()
"""
    for call in (
        "lead() if me() == 0 else follow()",
        "if me() == 0:\n    lead()\nelse:\n    follow()",
    ):
        assert found(text + call, "") == set()
        assert found(text + call.replace("follow()", "None"), "") == {"collective-on-some-ranks"}


def test_a_program_that_also_runs_alone_is_not_judged_by_that_run():
    text = """\
def main(rank, world_size):
    if world_size > 1:
        dist.init_process_group("nccl", rank=rank, world_size=world_size)
        torch.cuda.set_device(rank)
    if rank == 0:
        torch.save(1, "model.pt")
n = torch.cuda.device_count()
if n > 1:
    mp.spawn(main, args=(n,), nprocs=n)
else:
    main(rank=0, world_size=1)
"""
    assert found(text, "") == set()
    assert found(text.replace("n = torch.cuda.device_count()", "n = 4"), "") == set()
    hard = 'def main(rank):\n    dist.init_process_group("gloo", rank=rank)\nmain(0)'
    assert found(hard, "") == {"rank-hard-coded"}
