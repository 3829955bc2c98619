"""Who stands where in a comparison, and do all wait for each other? Without ranks."""

import re
import sys
from pathlib import Path

from allhands.train.compare.watch import PATIENCE_S, all_wait, link_of, place, waits


def test_ranks_hang_when_all_have_waited_long():
    waiting = {"waits": True, "still_s": PATIENCE_S}
    assert all_wait([waiting, waiting])
    assert not all_wait([waiting, waiting | {"waits": False}])  # one computes
    assert not all_wait([waiting, waiting | {"still_s": 0.1}])  # one has just come
    assert not all_wait([waiting, None])  # one has not begun


class Comm:
    def allreduce_obj(self, value):
        caller = sys._getframe(1)
        return waits(caller), place(caller)

    add = allreduce_obj


def test_a_call_that_waits_is_known_by_its_line():
    waiting, where = Comm().allreduce_obj(1)
    assert waiting
    assert re.fullmatch(
        rf"line \d+ of {Path(__file__).name}: waiting, where = Comm\(\).allreduce_obj\(1\)", where
    )
    waiting, _ = Comm().add(1)
    assert not waiting


def test_a_layer_that_waits_is_named_by_its_class():
    class Norm:
        def forward(self):
            return link_of(sys._getframe(0)), place(sys._getframe(0))

    assert Norm().forward()[0] == ""
    Norm.__module__ = "chainermn.links.batch_normalization"
    layer, where = Norm().forward()
    assert layer == "Norm"
    assert where.endswith("(in Norm)")
