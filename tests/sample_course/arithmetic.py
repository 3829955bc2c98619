"""The right answer of an exercise, written once."""


def double(number):
    """Twice the number.

    Takes and returns an int.
    """
    # the sum of two equal numbers
    return number + number
