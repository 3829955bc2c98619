"""The figures of lab 4's talk."""

from allhands.mgwfbp import measured, optimal
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate
from allhands.trace import draw
from allhands.trace.talks import canvas
from allhands.trace.talks import merging as pictures

THREE = Gradients(ready_s=(0, 4, 9), n_bytes=(4, 1, 1))  # as in the notebook
SLOW_LINK = AffineCost(startup_s=5, s_per_byte=1)


def _extremes(gradients: Gradients) -> dict[str, Plan]:
    n = len(gradients)
    return {"one per gradient": one_per_gradient(n), "single bucket": single_bucket(n)}


def lab4_mgwfbp_talk_extremes() -> draw.Picture:
    """GoogLeNet on 64 workers: one message for each gradient, and one for all."""
    googlenet, link = measured.googlenet_k80(), measured.k80_10gbe(64)
    found = {
        name: simulate(googlenet, plan, link).events()
        for name, plan in _extremes(googlenet).items()
    }
    return canvas.for_slide(draw.timelines(found))


def lab4_mgwfbp_talk_plans() -> draw.Picture:
    """The four plans of three gradients."""
    return pictures.plans(
        (
            ([[0], [1], [2]], "three messages: WFBP"),
            ([[0, 1], [2]], "two messages"),
            ([[0], [1, 2]], "two messages"),
            ([[0, 1, 2]], "one message: single bucket"),
        )
    )


def lab4_mgwfbp_talk_workers() -> draw.Picture:
    """Two plans and the bound of all, over the number of workers."""
    googlenet, workers = measured.googlenet_k80(), [4**power for power in range(1, 7)]
    links = [measured.k80_10gbe(n) for n in workers]
    shares = {
        name: [googlenet.compute_s / finish_s(googlenet, plan, link) for link in links]
        for name, plan in _extremes(googlenet).items()
    }
    bound = [googlenet.compute_s / optimal.lower_bound_s(googlenet, link) for link in links]
    return pictures.efficiency(workers, shares, bound)


def lab4_mgwfbp_talk_arrivals() -> draw.Picture:
    """GoogLeNet's gradients, and the authors' link of 64 workers."""
    googlenet, link = measured.googlenet_k80(), measured.k80_10gbe(64)
    return pictures.arrivals(
        googlenet.ready_s, googlenet.n_bytes, googlenet.forward_s, link.s_per_byte
    )


def lab4_mgwfbp_talk_link() -> draw.Picture:
    """The authors' table of eight nodes."""
    return pictures.message_times(*measured.osu_allreduce_10gbe(8))


def lab4_mgwfbp_talk_three() -> draw.Picture:
    """Three gradients, each sent alone."""
    done = simulate(THREE, one_per_gradient(3), SLOW_LINK)
    return pictures.messages(THREE.ready_s, done.start_s, done.end_s, SLOW_LINK.startup_s)


def lab4_mgwfbp_talk_rule() -> draw.Picture:
    """What the published rule looks at."""
    return pictures.looks_ahead()


def lab4_mgwfbp_talk_gaps() -> draw.Picture:
    """GoogLeNet's gaps, and the start-ups of 8 and 64 workers.

    The two longest are cut off: where the rule collapses is an exercise.
    """
    startups_s = {f"start-up of {n} workers": measured.k80_10gbe(n).startup_s for n in (64, 8)}
    return pictures.gaps(measured.googlenet_k80().ready_s, startups_s, most_ms=9)


FIGURES = (
    lab4_mgwfbp_talk_extremes,
    lab4_mgwfbp_talk_plans,
    lab4_mgwfbp_talk_workers,
    lab4_mgwfbp_talk_arrivals,
    lab4_mgwfbp_talk_link,
    lab4_mgwfbp_talk_three,
    lab4_mgwfbp_talk_rule,
    lab4_mgwfbp_talk_gaps,
)
