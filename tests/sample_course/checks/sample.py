"""The checks of the sample lab."""

from allhands.grade.check import likely, show


def double(mark, double):
    two = mark.run(double, 1)
    mark.require(
        two == 2,
        1,
        "twice 1 is 2",
        show(two),
        likely((two == 1, "1 times 1 is not twice 1"), otherwise="add the number to itself"),
    )
    six = mark.run(double, 3)
    mark.require(six == 6, 2, "twice 3 is 6", show(six), "add the number to itself")


def first(mark, first):
    got = mark.run(first, "abc")
    mark.require(got == "a", 2, "the first letter of abc is a", show(got), "count from 0")


def size(mark, size):
    mark.require(size == 3, 1.5, "the length of abc", show(size))
