"""Mistake: nothing of the evaluation is summed over the ranks."""

import healthy
from alone import ALONE


def build(comm):
    return healthy.build(comm, metrics=lambda mine, comm: healthy.metrics(mine, ALONE))
