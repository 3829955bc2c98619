"""What theory makes of a wire, and that a measurement survives the disk."""

import pytest

from allhands.mgwfbp import theory
from allhands.train.all_reduce_times import THEORY, Measured, gather_broadcast_cost

SIZES = (4, 1024, 1 << 20)


def measured(n_ranks=2, times_s=None):
    """A wire of 2 us and 1 ns a byte, no time to add, and whatever times of an all-reduce."""
    message_s = tuple(2e-6 + 1e-9 * size for size in SIZES)
    return Measured(n_ranks, 2, SIZES, times_s or {"ring": message_s}, message_s, 0.0)


def test_gather_broadcast_of_three_ranks_by_hand():
    """Two messages in, two additions, two messages out."""
    cost = gather_broadcast_cost(3, theory.Wire(10.0, 1.0, 0.25))
    assert (cost.startup_s, cost.s_per_byte) == (40.0, 4.5)
    assert gather_broadcast_cost(1, theory.Wire(10.0, 1.0, 0.25))(100) == 0


def test_theory_speaks_of_the_wire_that_was_measured():
    wire = measured().wire
    assert wire.latency_s == pytest.approx(2e-6)
    assert wire.s_per_byte == pytest.approx(1e-9)
    ring = measured(n_ranks=4).predicted("ring")
    assert ring.startup_s == pytest.approx(6 * 2e-6)
    assert ring.s_per_byte == pytest.approx(1.5e-9)


def test_with_two_ranks_doubling_has_half_the_startups_of_the_others_and_no_fewer_bytes():
    costs = {name: cost(2, theory.Wire(1.0, 1.0)) for name, cost in THEORY.items()}
    assert costs["ring"].startup_s == 2 * costs["recursive doubling"].startup_s
    assert costs["ring"].s_per_byte == costs["recursive doubling"].s_per_byte
    assert costs["gather-broadcast"].s_per_byte == 2 * costs["ring"].s_per_byte


def test_what_was_saved_is_read_to_the_last_digit(tmp_path):
    times_s = {"ring": (1e-5, 2.1e-5, 1 / 3), "MPI's own": (1e-6, 1 / 7, 0.5)}
    was = measured(4, times_s)
    was.save(tmp_path / "new")
    assert Measured.load(tmp_path / "new") == was
    assert (tmp_path / "new" / "mpis_own.csv").exists()


def test_a_folder_without_a_measurement_is_named_with_the_command(tmp_path):
    with pytest.raises(ValueError, match=r"python -m allhands\.train\.all_reduce"):
        Measured.load(tmp_path)


def test_the_table_says_when_ranks_share_cores_and_when_no_line_fits():
    falling = (3e-3, 2e-3, 1e-3)
    row = str(measured(2, {"ring": falling})).splitlines()[-1]
    assert row.split() == ["ring", "-", "4.0", "-", "1.000"]
    busy = Measured(2, 2, SIZES, {"ring": falling}, falling, 0.0)
    assert "no straight line fits the wire" in str(busy)
    assert str(busy).splitlines()[-1].split() == ["ring", "-", "-", "-", "-"]
    assert "take turns" in str(measured(4))
    assert "take turns" not in str(measured(2))


def test_the_figure_has_a_line_an_algorithm_and_two_logarithmic_axes():
    times_s = {"ring": (1e-5, 2e-5, 1e-3), "MPI's own": (1e-6, 1e-5, 1e-3)}
    (axes,) = measured(2, times_s).figure().axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == list(times_s)
    assert axes.lines[0].get_ydata() == pytest.approx([1e-2, 2e-2, 1.0])  # ms
    theory_ms = axes.lines[2].get_ydata()  # of the ring, the one that theory knows
    assert theory_ms == pytest.approx([1e3 * (2 * 2e-6 + 1e-9 * size) for size in SIZES])
    assert len(axes.lines) == 3
    low, high = axes.get_ylim()
    assert 1e-4 < low < 1e-3 < 1 < high < 10  # close around the points
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
