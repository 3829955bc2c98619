"""Mistake in one of lab 2's functions: the counts of the ranks are not summed."""


def total(counts, comm):
    return dict(counts)
