"""What is a communicator for one rank, without MPI? One that has nobody to talk to.

A run on one rank takes the same steps as a run on many, and needs neither MPI nor a launcher.
"""


class Alone:
    """Speaks what the trainer asks of a ChainerMN communicator, for a world of one rank."""

    rank = intra_rank = inter_rank = 0
    size = intra_size = inter_size = 1

    def allreduce_obj(self, number):
        return number

    def bcast_obj(self, thing, root: int = 0):
        return thing


ALONE = Alone()
