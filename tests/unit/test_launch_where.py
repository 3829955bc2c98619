"""Where a rank stands: which call it is making, and whether others must answer it."""

import functools
import sys

import pytest

from allhands.launch import where


@pytest.mark.parametrize(
    "name", ["bcast", "Ibcast", "bcast_data", "Allreduce", "allreduce_obj", "Recv", "Wait"]
)
def test_calls_that_wait_for_others_are_known_by_name(name):
    assert where.waits_for_others(name)


@pytest.mark.parametrize("name", ["rank", "Get_size", "Abort", "intra_rank", "free"])
def test_other_names_are_not(name):
    assert not where.waits_for_others(name)


class Link:
    """A communicator, for those who look by its package."""

    def recv(self, ask):
        return ask()


class Box(Link):
    pass


Link.__module__ = "mpi4py.MPI"
# A bound method as C code would have it: no module of its own, only that of its owner.
Link.recv.__module__ = None


def ask(call):
    """What `where` says of the frame that runs `call`, at the moment in which it calls us."""
    return call(lambda: where.waits(sys._getframe(1).f_back))


def test_a_call_of_a_communicator_waits():
    comm = Link()
    assert ask(lambda look: comm.recv(look))
    assert ask(
        lambda look: [
            1,
            comm.recv(
                look,
            ),
        ][1]
    )


def test_a_call_with_such_a_name_of_anything_else_does_not_wait():
    mail = Box()
    Box.__module__ = "post_office"
    assert not ask(lambda look: mail.recv(look))
    assert not ask(lambda look: functools.reduce(lambda a, b: where.waits(sys._getframe(1)), "ab"))


def test_the_text_beside_the_call_does_not_count():
    comm = Link()

    def count(look):
        return look()

    assert not ask(lambda look: (count(look), comm)[0])  # no comm.recv(look) here


def test_what_cannot_be_looked_up_goes_by_its_name():
    assert ask(lambda look: (lambda: Box())().recv(look))


def test_the_stack_that_faulthandler_wrote():
    stack = where.stack_written(
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/env/site-packages/mpi4py/util.py", line 3 in wait\n'
        '  File "/lab/exchange.py", line 12 in ring\n'
        '  File "/lab/train.py", line 40 in <module>\n'
        '  File "<frozen runpy>", line 88 in _run_code\n'
        '  File "/env/allhands/launch/rank.py", line 99 in run\n'
    )
    assert where.told(where.in_script_folder(stack)) == "line 12 of exchange.py"
    assert where.innermost(stack, lambda file: not where.is_library(file)) == stack[1]
    assert where.told(where.in_script_folder([])) == ""


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/env/lib/python3.11/site-packages/chainer/link.py", True),
        (functools.__file__, True),
        ("<frozen runpy>", True),
        ("mpi4py/MPI.pyx", True),
        ("/lab/site/train.py", False),
        ("/tmp/ipykernel_7/1234.py", False),
    ],
)
def test_files_of_libraries(file, library):
    assert where.is_library(file) is library
