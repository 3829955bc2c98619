"""Which MPI is it? The texts are what the programs and libraries say of themselves."""

import pytest

from allhands.launch.mpi import MPI, family, own_environ, version

TEXTS = [
    (
        "HYDRA build details:\n    Version:                                 5.0.2\n",
        "MPICH",
        "5.0.2",
    ),
    ("MPICH Version:      5.0.2\nMPICH ABI:          18:2:6\n", "MPICH", "5.0.2"),
    ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/", "Open MPI", "4.1.4"),
    ("mpiexec (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org", "Open MPI", "5.0.11"),
    ("Intel(R) MPI Library 2021.18 for Linux* OS\n", "MPICH", "2021.18"),
    ("some other launcher\n", "", ""),
]


@pytest.mark.parametrize(("text", "name", "number"), TEXTS)
def test_family_and_version(text, name, number):
    assert (family(text), version(text)) == (name, number)


def test_what_a_scheduler_and_outer_launchers_say_is_not_passed_on_and_the_rest_is():
    kept = {"PATH": "/bin", "OMPI_MCA_btl": "tcp,self", "CUDA_VISIBLE_DEVICES": "0"}
    foreign = {
        "SLURM_JOB_ID": "1",
        "PBS_NODEFILE": "nodes",
        "PMI_RANK": "0",
        "PMIX_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "4",
        "WORLD_SIZE": "4",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
    }
    assert own_environ(kept | foreign) == kept


def test_only_open_mpi_needs_settings_and_version_4_has_another_name_for_shared_memory():
    assert MPI("mpiexec", "MPICH", "5.0.2").environ() == {}
    five = MPI("mpiexec", "Open MPI", "5.0.11").environ()
    four = MPI("mpiexec", "Open MPI", "4.1.4").environ()
    assert five["OMPI_ALLOW_RUN_AS_ROOT"] == four["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert (five["OMPI_MCA_btl"], four["OMPI_MCA_btl"]) == ("self,sm", "self,vader")
