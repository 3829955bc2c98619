"""The figures of lab 0's talk."""

from pathlib import Path

from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.table import read_table
from allhands.trace import diagrams_machine, draw
from allhands.trace.talks import canvas, curves, ranks

RECORDED = Path(__file__).resolve().parents[1] / "recorded"


def lab0_doctor_talk_nodes() -> draw.Picture:
    """Two nodes with two ranks each: what the words mean."""
    placement = {"": [[0, 1], [2, 3]]}
    return canvas.for_slide(diagrams_machine.ranks_on_nodes(placement))


def lab0_doctor_talk_placements() -> draw.Picture:
    """Four ranks on two nodes, in two ways."""
    ways = {"node after node": [[0, 1], [2, 3]], "round the nodes": [[0, 2], [1, 3]]}
    return ranks.placements(ways)


def lab0_doctor_talk_round_trip() -> draw.Picture:
    """Two ranks throw a ball back and forth."""
    return ranks.round_trip()


def lab0_doctor_talk_from_afar() -> draw.Picture:
    """One message between two hosts of a cluster in a box, on linear axes."""
    sizes, times_s = read_table(RECORDED / "lab0_box_link_1gbit_250us" / "message.csv")
    return curves.from_afar(sizes, times_s, fit(sizes, times_s).cost)


FIGURES = (
    lab0_doctor_talk_nodes,
    lab0_doctor_talk_placements,
    lab0_doctor_talk_round_trip,
    lab0_doctor_talk_from_afar,
)
