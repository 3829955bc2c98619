"""Number formats of deep learning, and what they do to a training; NumPy alone.

from allhands.precision.formats import BF16, FP16, round_to
round_to(0.1, FP16)
"""
