"""The faults of the debugging labs: a module a lab, a function a fault, each with two readings.

The body of such a function is the repaired code. Its lines `### FAULT code` are the whole body of
the faulty one. `readings.py` makes two callables of it, and

    python -m allhands.train.faults NAME --faulty --ranks 4

starts one of them on ranks, if it is a program of a rank.
"""
