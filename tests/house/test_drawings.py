"""What slides say beside a drawing is true of the numbers that are drawn."""

import importlib.util
from itertools import pairwise

import numpy as np

from allhands.kit.deck import SLIDES
from allhands.mgwfbp.plan import finish_s, one_per_gradient
from allhands.precision.formats import neighbours, round_to


def drawings(deck: str):
    spec = importlib.util.spec_from_file_location(deck, SLIDES / "drawings" / f"{deck}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_ruler_of_lab_3_has_all_numbers_of_its_format():
    lab3 = drawings("lab3_mixedprec")
    numbers, n_subnormal = lab3._numbers()
    assert numbers[0] == 0
    assert numbers[-1] == lab3.SMALL.largest
    assert numbers[n_subnormal] == lab3.SMALL.smallest_normal
    assert all(neighbours(a, lab3.SMALL)[1] == b for a, b in pairwise(numbers))


def test_the_two_ills_of_lab_3_are_so():
    small = drawings("lab3_mixedprec").SMALL
    assert round_to(0.02, small) == 0
    assert round_to(small.smallest, small) == small.smallest == 0.0625
    assert round_to(1 + small.smallest, small) == 1


def test_three_gradients_of_lab_4_sent_alone_end_at_21():
    lab4 = drawings("lab4_mgwfbp")
    assert finish_s(lab4.THREE, one_per_gradient(3), lab4.SLOW_LINK) == 21


def test_nine_tenths_of_googlenet_are_ready_at_210_ms():
    googlenet = drawings("lab4_mgwfbp").measured.googlenet_k80()
    ready_bytes = np.array(googlenet.n_bytes)[np.array(googlenet.ready_s) <= 0.21].sum()
    assert 0.9 <= ready_bytes / googlenet.total_bytes < 0.95
    assert googlenet.compute_s > 0.3
