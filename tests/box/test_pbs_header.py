"""The strict reader of `#PBS` lines and of qsub's command line: what it takes, what it refuses.

Messages and exit codes are those of OpenPBS (an error's number modulo 256).
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.box.pbs.header import Chunk, PbsError, read, split
from allhands.box.pbs.words import ATTRIBUTES, OPTIONS, RESOURCES, USAGE, seconds

JOBS = Path(__file__).parents[2] / "cluster_jobs"
SCRIPTS = sorted(JOBS.glob("*.pbs"))


def refused(script: str, *argv: str) -> tuple[str, int]:
    """(message, exit code) of a refusal."""
    with pytest.raises(PbsError) as caught:
        read(script, argv)
    return str(caught.value), caught.value.code


# ---- what is read ----


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_every_job_script_is_read_as_its_needs_line_says(script: Path):
    text = script.read_text()
    job = read(text, [script.name])
    needs = dict(re.findall(r"(\w+)=(\d+)", re.search(r"^#NEEDS (.*)$", text, re.MULTILINE)[1]))
    (chunk,) = job.chunks
    assert chunk.count == int(needs.get("nodes", 1))
    assert chunk.mpiprocs == int(needs.get("ranks_per_node", 1))
    assert job.place == ("scatter" if chunk.count > 1 else None), "two nodes, and not one host"
    assert job.name == script.stem[:15]
    assert (job.join, job.shell) == ("oe", "/bin/bash")
    assert job.queue is job.account is None, "queue and account are the site's"


def test_the_command_line_wins_and_only_over_what_it_names():
    header = "#PBS -N written\n#PBS -q long\n#PBS -l walltime=10\n#PBS -l select=3:ncpus=2\n"
    job = read(header, ["-q", "short", "-l", "walltime=1:00:00", "a.sh"])
    assert (job.name, job.queue, job.walltime_s) == ("written", "short", 3600)
    assert job.chunks == (Chunk(3, ncpus=2),)


def test_of_an_option_the_last_counts_and_of_a_resource_in_the_header_the_first():
    header = "#PBS -q one\n#PBS -q two\n#PBS -l walltime=1\n#PBS -l walltime=2\n"
    job = read(header, ["a.sh"])
    assert (job.queue, job.walltime_s) == ("two", 1)
    assert read("", ["-l", "walltime=1", "-l", "walltime=2", "a.sh"]).walltime_s == 2


def test_directives_end_at_the_first_command():
    header = "#!/bin/bash\n\n# a comment\n  #PBS -q one\n: nothing\n#PBS -N \\\n  late\n"
    header += "true\n#PBS -q two\n"
    job = read(header, ["a.sh"])
    assert (job.queue, job.name) == ("one", "late")
    assert read("#QQ -q one\n#PBS -q two\n", ["-C", "#QQ", "a.sh"]).queue == "one"


def test_a_backslash_continues_a_directive_and_nothing_else():
    assert read("#PBS -l wall\\\ntime=7\n", ["a.sh"]).walltime_s == 7
    assert read("# a comment \\\n#PBS -q one\n", ["a.sh"]).queue == "one"
    assert read("#PBS -q one\\ \n#PBS -q two\n", ["a.sh"]).queue == "two", "a space follows it"


@pytest.mark.parametrize("end", ["\r\n", " \t\n", "\n \t\r\n"])
def test_white_space_at_a_lines_end_does_not_count(end: str):
    job = read(f"#!/bin/sh{end}\t#PBS\t-q\tone{end}#PBS -l walltime=1:00{end}true{end}", ["a.sh"])
    assert (job.queue, job.walltime_s) == ("one", 60)


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\udcff"])
def test_a_line_ends_where_the_shell_ends_it(mark: str):
    """Python's splitlines knows eight more ends, after which a directive would begin."""
    assert read(f"# note{mark}#PBS -q two\n#PBS -q one\n", ["a.sh"]).queue == "one"
    assert read(f"# note{mark}true\n#PBS -q one\n", ["a.sh"]).queue == "one"


def test_what_looks_like_a_directive_in_a_here_document_is_text():
    text = "#PBS -q one\ncat > next.sh << EOF\n#PBS -q two\n#PBS -Y\nEOF\n"
    assert read(text, ["a.sh"]).queue == "one"


def test_a_directive_may_be_long():
    value = "x" * 2**16
    assert read(f"#PBS -v A={value}\n", ["a.sh"]).variables == {"A": value}


def test_options_may_stand_with_their_value_and_together():
    job = read("", ["-qgpu", "-zh", "-Vlwalltime=2:03", "-Wblock=true", "a.sh"])
    assert (job.queue, job.silent, job.hold, job.block) == ("gpu", True, True, True)
    assert (job.all_variables, job.walltime_s) == (True, 123)


def test_a_select_has_chunks_of_several_kinds():
    job = read("", ["-l", "select=1:ncpus=4:mpiprocs=2:ompthreads=2+3:ngpus=1:mem=4gb", "a.sh"])
    assert job.chunks == (
        Chunk(1, ncpus=4, mpiprocs=2, ompthreads=2),
        Chunk(3, ngpus=1, mem="4gb"),
    )
    assert [chunk.threads for chunk in job.chunks] == [2, 1]
    assert read("", ["-l", "ncpus=8", "a.sh"]).chunks == (Chunk(1, ncpus=8),)


def test_the_old_nodes_are_chunks_on_hosts_of_their_own():
    job = read("#PBS -l nodes=2:ppn=3\n", ["a.sh"])
    assert (job.chunks, job.place) == ((Chunk(2, ncpus=3, mpiprocs=3),), "scatter")


@pytest.mark.parametrize(
    ("words", "accounts"),
    [
        (["-A", "gr01"], (("-A", "gr01"),)),
        (["-P", "gr01"], (("-P", "gr01"),)),
        (["-W", "group_list=gr01"], (("-W group_list", "gr01"),)),
        (["-W", "umask=077,group_list=gr01,block=false"], (("-W group_list", "gr01"),)),
    ],
)
def test_it_says_by_which_option_the_account_came(words, accounts):
    job = read("", [*words, "a.sh"])
    assert (job.accounts, job.account) == (accounts, "gr01")


def test_dependencies_and_arrays():
    job = read("", ["-W", "depend=afterok:1.ctl:2[].ctl,afterany:3", "-J", "0-8:2%3", "a.sh"])
    assert job.dependencies == (("afterok", ("1.ctl", "2[].ctl")), ("afterany", ("3",)))
    assert job.array == "0-8:2%3"
    assert read("", ["-J", "1-2", "-W", "max_run_subjobs=1", "a.sh"]).array == "1-2%1"


def test_variables_come_with_their_values_or_from_the_submitter():
    words = ["-v", "HERE,A=1,B='x, y',C=p\\,q,D=k=v", "a.sh"]
    found = read("", words, {"HERE": "there", "OTHER": "not asked for"}).variables
    assert found == {"HERE": "there", "A": "1", "B": "x, y", "C": "p,q", "D": "k=v"}


def test_the_name_is_the_scripts_or_of_standard_input_or_of_a_command():
    assert read("", ["folder/a.sh"]).name == "a.sh"
    assert read("", []).name == "STDIN"
    job = read("", ["-q", "gpu", "--", "sleep", "-5"])
    assert (job.name, job.script, job.command) == ("STDIN", None, ("sleep", "-5"))
    assert read("", ["-N", "n" * 230, "a.sh"]).name == "n" * 230


@given(st.text(alphabet="ab \"'", max_size=12))
def test_words_of_a_directive_are_those_of_a_shell(line: str):
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        with pytest.raises(PbsError):
            split(line)
    else:
        assert split(line) == words


@given(st.integers(0, 10**6))
def test_a_duration_may_be_written_in_three_ways(total: int):
    minutes, rest = divmod(total, 60)
    written = (str(total), f"{minutes}:{rest}", f"{minutes // 60}:{minutes % 60:02}:{rest:02}")
    assert {seconds(text) for text in written} == {total}


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["-Y", "a.sh"], "qsub: invalid option -- 'Y'", 2),
        (["-VY", "a.sh"], "qsub: invalid option -- 'Y'", 2),
        (["-q"], "qsub: option requires an argument -- 'q'", 2),
        (["a.sh", "-q", "gpu"], "", 2),
        (["-r", "maybe", "a.sh"], "qsub: illegal -r value", 2),
        (["-l", "walltime = 1 2", "a.sh"], "qsub: illegal -l value", 2),
        (["-W", "block", "a.sh"], "qsub: illegal -W value", 2),
        (["-N", "two words", "a.sh"], "qsub: illegal -N value", 166),
        (["-N", "n" * 231, "a.sh"], "qsub: illegal -N value", 166),
        (["-j", "both", "a.sh"], "qsub: illegal -j value", 166),
        (["-J", "3", "a.sh"], "qsub: illegal -J value", 166),
        (["-W", "nonsense=1", "a.sh"], "qsub: Undefined attribute nonsense", 154),
        (["-W", "depend=whenever:1", "a.sh"], "qsub: illegal -W value", 166),
        (["-l", "nonsense=1", "a.sh"], "qsub: Unknown resource Resource_List.nonsense", 187),
        (
            ["-l", "walltime=soon", "a.sh"],
            "qsub: Illegal attribute or resource value Resource_List.walltime",
            166,
        ),
        (
            ["-l", "select=1:ncpus=two", "a.sh"],
            "qsub: Illegal attribute or resource value Resource_List.select",
            166,
        ),
        (
            ["-l", "select=1:ncpus=1:walltime=60", "a.sh"],
            'qsub: Resource invalid in "select" specification: walltime',
            4,
        ),
        (
            ["-l", "select=1:nonsense=1", "a.sh"],
            'qsub: Resource invalid in "select" specification: nonsense',
            4,
        ),
        (
            ["-l", "select=1", "-l", "ngpus=1", "a.sh"],
            'qsub: "-lresource=" cannot be used with "select" or "place", resource is: ngpus',
            5,
        ),
        (["-r", "n", "-J", "1-2", "a.sh"], "qsub:  cannot submit non-rerunable Array Job", 2),
        (["-v", "NOT_SET", "a.sh"], "qsub: cannot send environment with the job", 1),
    ],
)
def test_a_wrong_word_has_the_message_and_the_code_of_qsub(words, said, code):
    assert refused("", *words) == (said, code)


@pytest.mark.parametrize("line", ["-A gr01 # mine", "-q", "-Y", "-l select=1:mem=8 gb", "gpu"])
def test_a_wrong_directive_is_shown_whole(line: str):
    message, code = refused(f"#!/bin/sh\n#PBS {line}\n", "a.sh")
    assert message.splitlines()[-1] == f"qsub: directive error: {line} "
    assert code == 1


@pytest.mark.parametrize("words", [["-I"], ["-W", "stagein=a@b:c"], ["-W", "depend=on:2"]])
def test_what_the_stand_in_cannot_do_is_refused_and_not_left_out(words):
    message, code = refused("", *words, "a.sh")
    assert "the stand-in for PBS cannot do" in message
    assert code == 1


def test_each_option_of_the_usage_is_in_the_table_and_the_other_way_round():
    assert set(re.findall(r"\[-(\w)", USAGE)) - {"X"} == set(OPTIONS) - {"X", "G"}
    for table in (OPTIONS, RESOURCES, ATTRIBUTES):
        assert all(entry.meaning for entry in table.values())


# ---- the dialects of three sites ----


@pytest.mark.parametrize(
    ("site", "option"),
    [("reedbush-h", "-W group_list"), ("miyabi-g", "-W group_list"), ("abci3", "-P")],
)
@pytest.mark.parametrize(
    ("lab", "shape", "nodes", "ranks_per_node"),
    [
        ("lab1_seq2seq", (), 1, 1),
        ("lab2_dataparallel", ("--nodes", "2", "--ranks-per-node", "1"), 2, 1),
        ("lab4_mgwfbp", (), 2, 1),
    ],
)
def test_submits_command_and_the_header_are_right_together(
    site, option, lab, shape, nodes, ranks_per_node
):
    """The command line that submit shows for the site, and the lab's header, as one job."""
    command = [sys.executable, str(JOBS / "submit"), lab, "--site", site, "--dry-run"]
    local = {"PATH": "/usr/bin:/bin", "ALLHANDS_ACCOUNT": "gr01", "ALLHANDS_ASK": "no"}
    ran = subprocess.run(
        [*command, "--time", "00:20:00", *shape], env=local, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = re.findall(r"^command  qsub (.*)$", ran.stdout, re.MULTILINE)
    job = read((JOBS / f"{lab}.pbs").read_text(), shlex.split(line))
    queue = re.search(r"ALLHANDS_QUEUE:-([\w-]+)", (JOBS / f"sites/{site}.env").read_text())[1]
    assert (job.queue, job.accounts) == (queue, ((option, "gr01"),))
    assert sum(chunk.count for chunk in job.chunks) == nodes
    assert {chunk.mpiprocs for chunk in job.chunks} == {ranks_per_node}
    assert nodes == 1 or job.place == "scatter"
    assert job.walltime_s == 20 * 60
    assert (job.name, job.join, job.script) == (lab[:15], "oe", f"cluster_jobs/{lab}.pbs")
    assert list(job.variables) == ["ALLHANDS_JOB"]
    assert job.output.endswith(".out")
