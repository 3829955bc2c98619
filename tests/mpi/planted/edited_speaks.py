"""Mistake, in one of lab 2's functions: every rank prints and writes files."""


def speaks(comm):
    return comm.rank >= 0
