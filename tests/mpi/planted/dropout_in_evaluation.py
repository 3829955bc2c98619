"""Mistake: dropout is on in the evaluation, so no two are equal."""

import chainer.functions as F
import healthy


def build(comm):
    return healthy.build(
        comm, count=lambda model, pairs: healthy.count(lambda x: F.dropout(model(x)), pairs)
    )
