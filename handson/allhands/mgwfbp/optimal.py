"""Which plan finishes first? The exact answer, in O(L) for an affine cost, in O(L^2) for any.

Notation: gradients 1..L in order of arrival, ready at r_e; P_e = bytes of gradients 1..e; an affine
cost is T(s) = a + b s. F(e) is the least time at which gradients 1..e can all be through. The last
of their groups holds j..e for some j, and starts when gradient e is ready and the groups before are
through, so

    F(0) = 0,   F(e) = min over j of  max(F(j-1), r_e) + T(P_e - P_{j-1}).

This is exact, because a later F(j-1) never makes the end earlier. Only groups of neighbours are
considered; for an affine cost and one link nothing is lost by that.

Why O(L) is enough, for T affine. F never falls (leave the last gradient out of a plan). Neither
does H(j) = F(j) - b P_j (take the last gradient out of its group: that saves at least b s; if it
was alone, it saves more). For fixed e, candidates with F(j-1) <= r_e cost r_e + a + b P_e minus
b P_{j-1}: the largest such j is best. The others cost H(j-1) + a + b P_e: the smallest such j is
best. Both lie at one boundary, which only moves right as e grows: two candidates for each e.

In code, index j stands for "gradients 0..j-1 are through", so that finish[j] is F(j).
"""

import numpy as np

from allhands.mgwfbp.cost import AffineCost, Cost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan

ROUNDING = 1e-12  # relative: two finish times this near to each other are the same


def lower_bound_s(gradients: Gradients, cost: Cost) -> float:
    """No plan ends before this, if T(x) + T(y) >= T(x + y) (always so for an affine cost).

    Everything must pass after the first gradient is ready; the last gradient after the last is.
    """
    return max(
        gradients.ready_s[0] + cost(gradients.total_bytes),
        gradients.ready_s[-1] + cost(gradients.n_bytes[-1]),
    )


def optimum(gradients: Gradients, cost: AffineCost) -> Plan:
    """Return a plan with the least finish time, in O(L). See the proof above."""
    _, previous = _least_finish(gradients, cost)
    return _walk_back(previous)


def _least_finish(gradients: Gradients, cost: AffineCost) -> tuple[list[float], list[int]]:
    """Return F (L + 1,) and, for each e, the j before its last group (L + 1,)."""
    a, b = cost.startup_s, cost.s_per_byte
    before = gradients.bytes_before
    finish, previous = [0.0], [0]
    j = 0  # the largest j < e with finish[j] <= r_e
    for e, ready in enumerate(gradients.ready_s, start=1):
        while j + 1 < e and finish[j + 1] <= ready:
            j += 1
        best, chosen = ready + a + b * (before[e] - before[j]), j
        if j + 1 < e:
            queued = finish[j + 1] + a + b * (before[e] - before[j + 1])
            if queued < best:
                best, chosen = queued, j + 1
        finish.append(best)
        previous.append(chosen)
    return finish, previous


def _walk_back(previous: list[int]) -> Plan:
    ends, e = [], len(previous) - 1
    while e > 0:
        ends.append(e - 1)
        e = previous[e]
    return Plan.from_ends(ends[::-1])


def fewest_messages(gradients: Gradients, cost: AffineCost) -> Plan:
    """Return, of all plans with the least finish time, one with the fewest groups, in O(L).

    Ties are common, and fewer messages mean fewer launches and copies: prefer this plan. From the
    end: take the longest last group that still meets the deadline D = F(L); then the gradients
    before it have the deadline D - T(group), and so on. This is exact: if a plan with n groups
    meets the deadline of a prefix, then cutting the prefix shorter by s bytes and its deadline by
    b s leaves it possible with n groups. Times within 1e-12 of each other, relative, are equal.
    """
    a, b = cost.startup_s, cost.s_per_byte
    ready_s, before = gradients.ready_s, gradients.bytes_before
    finish, previous = _least_finish(gradients, cost)
    e, deadline = len(gradients), finish[-1]
    slack = ROUNDING * deadline
    ends = []
    while e > 0:
        ends.append(e - 1)
        ready = ready_s[e - 1]
        j = e - 1
        while finish[j] > ready:
            j -= 1
        latest = deadline + slack
        if ready + a + b * (before[e] - before[j]) <= latest:
            while j > 0 and ready + a + b * (before[e] - before[j - 1]) <= latest:
                j -= 1
        else:  # it must queue behind the groups before: the longest that does ends first
            j = previous[e]
        deadline -= a + b * (before[e] - before[j])
        e = j
    return Plan.from_ends(ends[::-1])


def optimum_any_cost(gradients: Gradients, cost: Cost) -> Plan:
    """Return a plan of neighbours with the least finish time for any cost, in O(L^2).

    `cost` is called with arrays of sizes. The recursion above, without the shortcut.
    """
    ready_s = gradients.ready_s
    before = np.array(gradients.bytes_before, dtype=float)
    finish = np.zeros(len(ready_s) + 1)
    previous = [0]
    for e, ready in enumerate(ready_s, start=1):
        ends_s = np.maximum(finish[:e], ready) + cost(before[e] - before[:e])
        previous.append(int(np.argmin(ends_s)))
        finish[e] = ends_s[previous[-1]]
    return _walk_back(previous)
