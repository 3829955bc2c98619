"""The picture of the ring shows what the ring does."""

import numpy as np
import pytest

from allhands.trace.diagrams_parallel import ring_chunk, ring_states, ring_steps, ways_to_share
from allhands.train.all_reduce import ring
from allhands.train.rehearsal import rehearse


class Watched:
    """A rank's communicator that notes the numbers it is given to send."""

    def __init__(self, comm):
        self.comm, self.rank, self.size, self.sent = comm, comm.rank, comm.size, []

    def Sendrecv(self, sendbuf, **rest):
        self.sent.append(int(sendbuf[0]))
        self.comm.Sendrecv(sendbuf, **rest)


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 7])
def test_what_is_drawn_in_an_arrow_is_what_the_ring_sends(n_ranks):
    """Rank r gives the bit 2^r to every chunk, so a sum says whose numbers are in it."""

    def watch(comm, array):
        watched = Watched(comm)
        ring(watched, array)
        return watched.sent

    sent = rehearse(watch, [np.full(n_ranks, 2**rank) for rank in range(n_ranks)]).results
    states = ring_states(n_ranks)
    for rank in range(n_ranks):
        for step in range(2 * (n_ranks - 1)):
            drawn = states[step][rank][ring_chunk(n_ranks, step, rank)]
            assert sum(2**member for member in drawn) == sent[rank][step]


@pytest.mark.parametrize("n_ranks", [1, 2, 4, 5])
def test_after_half_of_the_steps_each_rank_has_one_whole_sum_and_at_the_end_all(n_ranks):
    states = ring_states(n_ranks)
    everyone = set(range(n_ranks))
    for rank in range(n_ranks):
        whole = [c for c in range(n_ranks) if states[n_ranks - 1][rank][c] == everyone]
        assert whole == [(rank + 1) % n_ranks]
    assert all(chunk == everyone for rank in states[-1] for chunk in rank)


@pytest.mark.parametrize(("draw", "n_panels"), [(ways_to_share, 6), (ring_steps, 8)])
def test_no_two_texts_of_a_picture_overlap_and_none_is_cut_off(draw, n_panels):
    picture = draw()
    picture.draw_without_rendering()
    assert len(picture.axes) == n_panels
    axes_texts = [t for axes in picture.axes for t in (*axes.texts, axes.title, axes._left_title)]
    boxes = [t.get_window_extent() for t in (*axes_texts, *picture.texts) if t.get_text()]
    width, height = picture.bbox.width, picture.bbox.height
    for i, box in enumerate(boxes):
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0
        assert not any(box.overlaps(other) for other in boxes[:i])
