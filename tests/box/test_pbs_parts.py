"""The parts of the PBS stand-in that need no scheduler: node files, names of outputs, job ids."""

from pathlib import Path

import pytest

from allhands.box.pbs import qsub, stat, table
from allhands.box.pbs.__main__ import main
from allhands.box.pbs.header import PbsError, read
from allhands.box.pbs.mom import Part, node_file, tasks_per_host
from allhands.box.pbs.spool import JobId, fields, without_slurm


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


@pytest.mark.parametrize(
    ("words", "flags", "users", "names"),
    [
        ("-f 7", "f", "", "7"),
        ("-fx 7.ctl 8", "fx", "", "7.ctl 8"),
        ("7 -f 8", "f", "", "7 8"),
        ("-u me", "", "me", ""),
        ("-ume,you@host gpu", "", "me you", "gpu"),
        ("-n1 -s", "n1s", "", ""),
        ("-anu me -t", "ant", "me", ""),
        ("-Q -f gpu", "Qf", "", "gpu"),
    ],
)
def test_qstats_options_may_stand_together(words, flags, users, names):
    assert stat.asked(words.split()) == (set(flags), set(users.split()), names.split())


def test_what_the_stand_in_does_not_show_is_a_sentence_and_the_rest_an_error():
    with pytest.raises(PbsError, match=r"the stand-in for PBS cannot do -q .* qstat -Q"):
        stat.asked(["-q"])
    with pytest.raises(PbsError, match="invalid option -- 'z'"):
        stat.asked(["-az"])
    with pytest.raises(PbsError, match="requires an argument -- 'u'"):
        stat.asked(["-u"])


def seen(parts: list[tuple[int, int]], state: str = "R", **slurm: str) -> stat.Seen:
    note = {
        "name": "a_name_of_many_letters",
        "owner": "me@ctl",
        "queue": "gpu",
        "walltime_s": 5400,
        "parts": [{"count": count, "ncpus": ncpus} for count, ncpus in parts],
        "comment": "",
    }
    return stat.Seen(JobId(7), Path(), note, state, slurm, None)


def test_the_alternate_table_has_a_row_under_its_head():
    """Two chunks of 4 cores and one of 1, on two hosts; an hour and a half, and 26 h of it ran."""
    job = seen([(2, 4), (1, 1)], NodeList="n[1-2]", RunTime="1-02:03:04", Reason="None")
    how = {"hosts": True, "why": False, "one_line": False}
    head = table.alternate_head(wide=False).splitlines()
    row, hosts = table.alternate_lines(job, wide=False, **how)
    assert " ".join(row.split()) == "7.ctl me gpu a_name_of* -- 3 9 -- 01:30 R 26:03"
    assert hosts == "   n1/0*4+n1/1*4+n2/0"
    assert len(row) == len(head[-1])
    assert [row[at : at + 2] for at in (head[-2].index("S Time"), 0)] == ["R ", "7."]
    wide, *_ = table.alternate_lines(job, wide=True, **how)
    assert len(wide) == len(table.alternate_head(wide=True).splitlines()[-1])
    waits = seen([(1, 1)], "Q", NodeList="(null)", Reason="Resources")
    (line,) = table.alternate_lines(waits, wide=False, hosts=True, why=True, one_line=True)
    assert line.endswith("01:30 Q    --   --   Not Running: Resources")


def test_hosts_in_slurms_short_form_are_spelt_out():
    names = table.host_names("n[1-3,7],ctl,gpu-[08-11]")
    assert names == ["n1", "n2", "n3", "n7", "ctl", "gpu-08", "gpu-09", "gpu-10", "gpu-11"]
    assert table.host_names("(null)") == []


def test_the_parts_of_an_array_are_counted_in_its_steps():
    assert list(stat.indices("0-8:3%2")) == [0, 3, 6]
    assert list(stat.indices("2-4")) == [2, 3, 4]


def test_a_script_and_its_variables_are_for_their_owner_and_keep_every_byte(tmp_path: Path):
    raw = bytes(range(256)) + "二十四\r\n".encode()
    qsub.write_private(tmp_path / "script", raw.decode(*qsub.AS_IT_IS))
    assert (tmp_path / "script").read_bytes() == raw
    assert (tmp_path / "script").stat().st_mode & 0o077 == 0


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
    shown = qsub.outputs(read("", [*words, "a.sh"]))
    places = {"HERE": str(tmp_path), "HOME": "/the/home"}
    for name, place in places.items():
        expected = [word.replace(name, place) for word in expected]
    assert shown == expected


def test_without_a_box_the_commands_say_what_they_need(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "a.sh").write_text("true\n")
    assert main(["qsub", str(tmp_path / "a.sh")]) == 1
    assert "there is no box here. Start one (allhands box up)" in capsys.readouterr().err
    assert main(["qsub", str(tmp_path / "missing.sh")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
