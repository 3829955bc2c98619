"""Mistake: the losses' sum is divided by the batch size that was asked for, whatever comes."""

import healthy


def build(comm):
    return healthy.build(comm, weigh=lambda loss, n, comm: loss * (n / healthy.BATCH))
