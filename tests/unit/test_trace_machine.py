"""The pictures of lab 0: ranks on nodes, and a link with its line."""

import numpy as np
import pytest

from allhands.mgwfbp.cost import AffineCost
from allhands.trace import diagrams_machine, draw_link

SIZES = np.geomspace(4, 4e6, 11)


def texts(axes) -> list[str]:
    return [one.get_text() for one in axes.texts]


def test_each_rank_uses_the_device_of_its_local_rank():
    picture = diagrams_machine.ranks_on_nodes({"round": [[0, 2], [1, 3]], "one": [[0]]})
    both, one = picture.axes
    shown = texts(both)
    for node, local, rank in ((0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 3)):
        at = shown.index(f"rank {rank}")
        assert shown[at : at + 3] == [f"rank {rank}", f"local rank {local}", f"device {local}"]
        assert shown.index(f"node n{node + 1}") < at
    assert shown.count("link") == 1
    assert "link" not in texts(one)


def test_a_link_has_its_points_its_line_and_a_tick_where_bytes_cost_as_much_as_the_start_up():
    cost = AffineCost(3e-4, 1e-8)
    picture = draw_link.link({"net": draw_link.Measured(SIZES, cost(SIZES), cost)}, "a link")
    (axes,) = picture.axes
    points, line, tick = axes.lines
    assert points.get_xydata() == pytest.approx(np.stack([SIZES, 1e6 * cost(SIZES)], axis=1))
    x, y = line.get_xydata().T
    assert y == pytest.approx(1e6 * cost(x))
    assert tick.get_xdata() == pytest.approx([3e4, 3e4])
    assert tick.get_ydata() == pytest.approx([300, 600])
    assert texts(axes) == ["a/b = 30,000 bytes"]


@pytest.mark.parametrize("cost", [None, AffineCost(3e-4, 0.0), AffineCost(9.0, 1e-8)])
def test_there_is_no_tick_without_a_bend_among_the_sizes(cost):
    picture = draw_link.link({"net": draw_link.Measured(SIZES, SIZES, cost)})
    assert texts(picture.axes[0]) == []
    assert len(picture.axes[0].lines) == (1 if cost is None else 2)
