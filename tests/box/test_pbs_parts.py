"""The parts of the PBS stand-in that need no scheduler: node files, names of outputs, job ids."""

from pathlib import Path

import pytest

from allhands.box import pbs
from allhands.box.pbs_header import PbsError, read
from allhands.box.pbs_mom import Part, node_file, tasks_per_host
from allhands.box.pbs_spool import JobId, fields, without_slurm


def test_the_node_file_names_a_host_once_a_rank_chunk_after_chunk():
    parts = [Part(1, ncpus=2, mpiprocs=2, threads=2), Part(2, ncpus=1, mpiprocs=1, threads=1)]
    assert node_file(["n1", "n2"], [2, 1], parts) == ["n1", "n1", "n1", "n2"]
    assert node_file(["n1"], [1], [Part(1, 4, 0, 4)]) == []


def test_slurms_way_to_write_tasks_is_read():
    assert tasks_per_host("2(x3),1") == [2, 2, 2, 1]
    assert tasks_per_host("4") == [4]


@pytest.mark.parametrize(
    ("text", "as_pbs", "as_slurm"),
    [
        ("7", "7.ctl", "7"),
        ("7.ctl", "7.ctl", "7"),
        ("7[].ctl", "7[].ctl", "7"),
        ("7[3]", "7[3].ctl", "7_3"),
    ],
)
def test_a_job_id_has_a_name_in_pbs_and_one_in_slurm(text, as_pbs, as_slurm):
    job = JobId.of(text, "qstat")
    assert (str(job), job.slurm) == (as_pbs, as_slurm)


def test_an_id_that_is_none_is_refused():
    with pytest.raises(PbsError, match=r"^qdel: illegally formed job identifier: x7$"):
        JobId.of("x7", "qdel")


def test_pairs_of_scontrol_may_hold_spaces():
    line = "JobId=7 Reason=Nodes required for job are DOWN Command=/a b/c.sh StdOut=/x=y"
    assert fields(line) == {
        "JobId": "7",
        "Reason": "Nodes required for job are DOWN",
        "Command": "/a b/c.sh",
        "StdOut": "/x=y",
    }


def test_nothing_of_slurm_is_left_in_an_environment():
    own = {"SLURM_JOB_ID": "7", "SBATCH_ACCOUNT": "a", "SRUN_DEBUG": "1", "SLURMD_NODENAME": "n1"}
    assert without_slurm({**own, "PATH": "/bin", "MY_SLURM_X": "1"}) == {
        "PATH": "/bin",
        "MY_SLURM_X": "1",
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["--output=HERE/a.sh.o%j", "--error=HERE/a.sh.e%j"]),
        (["-j", "oe"], ["--output=HERE/a.sh.o%j"]),
        (["-j", "eo"], ["--output=HERE/a.sh.e%j"]),
        (["-N", "n", "-j", "oe", "-J", "0-3"], ["--output=HERE/n.o%A.%a"]),
        (["-j", "oe", "-o", "log"], ["--output=HERE/log"]),
        (["-j", "oe", "-o", "host:/log 50%"], ["--output=/log 50%%"]),
        (["-j", "oe", "-o", "folder"], ["--output=HERE/folder/%j.ctl.OU"]),
        (["-j", "oe", "-o", "log.^array_index^", "-J", "0-3"], ["--output=HERE/log.%a"]),
        (["-j", "oe", "-k", "oe", "-o", "log"], ["--output=HOME/a.sh.o%j"]),
        (["-j", "oe", "-k", "oed", "-o", "log"], ["--output=HERE/log"]),
    ],
)
def test_output_goes_where_pbs_would_put_it(words, expected, tmp_path: Path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/the/home")
    shown = pbs.outputs(read("", [*words, "a.sh"]))
    places = {"HERE": str(tmp_path), "HOME": "/the/home"}
    for name, place in places.items():
        expected = [word.replace(name, place) for word in expected]
    assert shown == expected


def test_without_a_box_the_commands_say_what_they_need(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "a.sh").write_text("true\n")
    assert pbs.main(["qsub", str(tmp_path / "a.sh")]) == 1
    assert "there is no box here. Start one (allhands box up)" in capsys.readouterr().err
    assert pbs.main(["qsub", str(tmp_path / "missing.sh")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
