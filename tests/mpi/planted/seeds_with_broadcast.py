"""No mistake: each rank draws its own parameters, and ChainerMN's first update mends it."""

import different_seeds
import healthy


def build(comm):
    return healthy.build(comm, make_model=different_seeds.make_model)
