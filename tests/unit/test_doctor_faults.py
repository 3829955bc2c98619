"""Python, MPI, GPUs and schedulers: each fault is named, with its cure, and nothing else is."""

import pytest
from sample_machines import Laptop, cupy_says, on_slurm, only_this_is_named, with_gpu

from allhands.doctor.machine import Ran

SINGLETONS = Ran(0, "\n<rank 0 of 1: Open MPI>\n\n<rank 0 of 1: Open MPI>\n")
FAULTS = {
    # what is wrong: (machine, finding, status, words of what was seen, words of the advice)
    "old Python": (Laptop(python=(3, 10, 1)), "Python", "bad", "3.10.1", "Python 3.11"),
    "new Python": (Laptop(python=(3, 14, 0)), "Python", "bad", "3.14.0", "Python 3.11"),
    "no venv": (Laptop(in_environment=False), "Python", "warn", "3.11.9", "activate"),
    "not installed": (Laptop(requirements=None), "packages", "bad", "allhands", "make env"),
    "missing": (Laptop(installed={"torch": None}), "packages", "bad", "torch", "make env"),
    "wrong version": (
        Laptop(installed={"numpy": "2.4.6"}),
        "packages",
        "warn",
        "numpy 2.4.6 (pinned: ==1.26.4)",
        "make env",
    ),
    "intruder": (
        Laptop(installed={"chainermn": "1.3.1"}),
        "chainermn",
        "bad",
        "chainermn 1.3.1",
        "pip uninstall chainermn",
    ),
    "Chainer does not start": (
        Laptop(answers={"numpy.array": Ran(1, "Traceback\nModuleNotFoundError: No module X\n")}),
        "Chainer",
        "bad",
        "ModuleNotFoundError: No module X",
        "make env",
    ),
    "Chainer crashes": (
        Laptop(answers={"numpy.array": Ran(-11, "")}),
        "Chainer",
        "bad",
        "no output",
        "make env",
    ),
    "Chainer computes wrongly": (
        Laptop(answers={"numpy.array": Ran(0, "chainer 7.8.1 numpy 1.26.4 gradient 22.0 0.0\n")}),
        "Chainer",
        "bad",
        "instead of 22, 44",
        "make env",
    ),
    "Chainer hangs": (
        Laptop(answers={"numpy.array": Ran(None, "")}),
        "Chainer",
        "bad",
        "no answer",
        "disk",
    ),
    "two worlds of size 1": (
        Laptop(answers={"COMM_WORLD": SINGLETONS}),
        "MPI",
        "bad",
        "two worlds of size 1 (Open MPI)",
        "same MPI",
    ),
    "mpiexec hangs": (
        Laptop(answers={"COMM_WORLD": Ran(None, "")}),
        "MPI",
        "bad",
        "was ended after",
        "firewall",
    ),
    "no mpi4py": (
        Laptop(answers={"COMM_WORLD": Ran(1, "ModuleNotFoundError: No module named 'mpi4py'\n")}),
        "MPI",
        "bad",
        "No module named 'mpi4py'",
        "make env",
    ),
    "one rank died": (
        Laptop(answers={"COMM_WORLD": Ran(0, "<rank 0 of 2: MPICH>\n")}),
        "MPI",
        "bad",
        "failed",
        "must fit",
    ),
    "no mpiexec": (Laptop(missing_files={"mpiexec"}), "MPI", "bad", "no mpiexec", "make env"),
    "mpiexec from elsewhere": (
        Laptop(missing_files={"mpiexec"}, programs={"mpiexec": "/usr/bin/mpiexec"}),
        "MPI",
        "warn",
        "/usr/bin/mpiexec",
        "in full",
    ),
    "a scheduler that is gone": (
        on_slurm(answers={"sinfo": Ran(None, ""), "--mpi=list": Ran(1, "")}),
        "scheduler",
        "warn",
        "no answer after 5 s",
        "--site local",
    ),
    "a configuration that is gone": (
        on_slurm({"SLURM_CONF": "/gone.conf"}, missing_files={"gone.conf"}),
        "scheduler",
        "warn",
        "/gone.conf, which is not there",
        "unset SLURM_CONF",
    ),
    "the wrong PMI in the site file": (
        on_slurm({"ALLHANDS_LAUNCHER": "srun --mpi=pmix"}),
        "PMI",
        "bad",
        "--mpi=pmix, but MPICH speaks pmi2",
        'ALLHANDS_LAUNCHER="mpiexec -n {ranks}"',
    ),
    "a PMI that fits, and hangs on several nodes": (
        on_slurm({"ALLHANDS_LAUNCHER": "srun --mpi=pmi2"}, installed={"mpich": "5.0.2"}),
        "PMI",
        "warn",
        "--mpi=pmi2, and MPICH is from a wheel",
        'ALLHANDS_LAUNCHER="mpiexec -n {ranks}"',
    ),
    "no PMI that fits": (
        on_slurm(answers={"--mpi=list": Ran(0, "MPI plugin types are...\n\tpmix\n\tnone\n")}),
        "PMI",
        "warn",
        "MPICH speaks pmi2; srun offers pmix, none",
        "mpiexec -n {ranks}",
    ),
    "a launcher that makes worlds of 1": (
        on_slurm(
            {"ALLHANDS_LAUNCHER": "srun", "SLURM_JOB_ID": "7"},
            answers={"srun --ntasks=2": Ran(0, "<rank 0 of 1: X>\n<rank 0 of 1: X>\n")},
        ),
        "launcher",
        "bad",
        "two worlds of size 1",
        'ALLHANDS_LAUNCHER="mpiexec -n {ranks}"',
    ),
    "a launcher with a quote that does not end": (
        on_slurm({"ALLHANDS_LAUNCHER": "srun --x='", "SLURM_JOB_ID": "7"}),
        "launcher",
        "bad",
        "No closing quotation",
        "Mend the quotes",
    ),
    "a plugin of srun that is listed and cannot be loaded": (
        on_slurm(
            {"ALLHANDS_LAUNCHER": "srun --mpi=pmi2", "SLURM_JOB_ID": "7"},
            answers={"--ntasks=2": Ran(1, "srun: error: Invalid MPI type 'pmi2'\n")},
        ),
        "launcher",
        "bad",
        "Invalid MPI type",
        'ALLHANDS_LAUNCHER="mpiexec -n {ranks}"',
    ),
    "another mpiexec first": (
        Laptop(programs={"mpiexec": "/usr/bin/mpiexec"}),
        "mpiexec",
        "warn",
        "/usr/bin/mpiexec, not /env/bin/mpiexec",
        "export PATH=/env/bin:$PATH",
    ),
    "no lab": (Laptop(missing_files={"jupyter-lab"}), "Jupyter", "bad", "JupyterLab", "make env"),
    "no JupyterLab": (
        Laptop(installed={"jupyterlab": None}),
        "Jupyter",
        "bad",
        "JupyterLab",
        "make env",
    ),
    "no kernel": (Laptop(installed={"ipykernel": None}), "Jupyter", "bad", "ipykernel", "make env"),
    "GPU, no CuPy": (with_gpu(installed={}), "GPU", "warn", "no CuPy", "[gpu]"),
    "CuPy does not start": (
        with_gpu(answers={"import cupy": Ran(1, "ImportError: libcublas.so.12\n")}),
        "GPU",
        "warn",
        "libcublas.so.12",
        "CUDA version",
    ),
    "CuPy sees none": (
        with_gpu(answers=cupy_says(devices=0), environ={"CUDA_VISIBLE_DEVICES": ""}),
        "GPU",
        "warn",
        "GPU X",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "wrong sum": (with_gpu(answers=cupy_says(sum=0.0)), "GPU", "warn", "is 0.0", "make env"),
    "no NCCL": (
        with_gpu(answers=cupy_says(nccl=None, nccl_error="libnccl.so.2")),
        "NCCL",
        "warn",
        "libnccl.so.2",
        "nvidia-nccl",
    ),
    "PyTorch for CPUs": (
        with_gpu(torch_text="cuda: Optional[str] = None\n"),
        "PyTorch",
        "warn",
        "for CPUs only",
        "torch==2.13.0",
    ),
    "a driver that is too old": (
        with_gpu(answers={"nvidia-smi": Ran(0, "GPU X, 515.43.04\n")}),
        "driver",
        "warn",
        "515.43.04, but CuPy (CUDA 12) needs 525.60.13; PyTorch (CUDA 12.6) needs 525.60.13",
        "cupy-cuda11x in place of cupy-cuda12x",
    ),
    "a driver that does not run": (
        with_gpu(answers={"nvidia-smi": Ran(9, "NVIDIA-SMI has failed\n")}),
        "driver",
        "warn",
        "NVIDIA-SMI has failed",
        "another node",
    ),
    "a driver that hangs": (
        with_gpu(answers={"nvidia-smi": Ran(None, "")}),
        "driver",
        "warn",
        "no answer",
        "another node",
    ),
    "GPUs that the job was given and does not see": (
        on_slurm({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2"}),
        "job",
        "warn",
        "no GPU",
        "programs see none",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_named_with_its_cure_and_nothing_else_is(fault):
    only_this_is_named(*fault)
