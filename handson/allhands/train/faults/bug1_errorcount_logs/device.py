"""The program of device.log: an array is made before the device is chosen."""

from mpi4py import MPI

from allhands import launch
from allhands.train.excepthook import end_job_on_error
from allhands.train.virtual_gpu import gpus

comm = MPI.COMM_WORLD
launch.expect_world(comm)
end_job_on_error(comm)
cupy = gpus(4)


def count_words():
    counts = cupy.zeros(12)  # before the device is chosen: on device 0
    cupy.cuda.Device(comm.rank).use()
    return counts + cupy.ones(12)


if comm.rank == 0:
    print(f"102 sentences on {comm.size} ranks", flush=True)
comm.allreduce(float(count_words().sum()))
