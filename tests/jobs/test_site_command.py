"""`allhands site init`, `show` and `check`: questions, a file, and nothing else happens.

The node is a stand-in that answers nothing, or as PBS. The folder is a copy of cluster_jobs.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from allhands.cli import site as commands
from allhands.sites import detect, folder


@pytest.fixture
def at(project, nodes, monkeypatch):
    """Runs `allhands site ...` in the project, on a node of which nothing is known."""
    monkeypatch.chdir(project.root)
    for name in [name for name in os.environ if name.startswith("ALLHANDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{project.programs}:/usr/bin:/bin")
    monkeypatch.setattr(detect, "Node", lambda: nodes.Fake(environ=os.environ))

    def run(*words: str, typed: str = "", node: object = None):
        if node:
            monkeypatch.setattr(detect, "Node", lambda: node)
        return CliRunner().invoke(commands.app, list(words), input=typed)

    return run


def own_files(project) -> set[str]:
    folder = project.root / "cluster_jobs/sites"
    return {
        path.name for path in folder.iterdir() if path.name.startswith(("my_", ".my", "default"))
    }


def test_with_yes_it_writes_the_file_and_shows_by_a_dry_run_that_it_works(project, at):
    ran = at("init", "--yes", "--name", "here", "--set", "LEVEL=cpu")
    assert ran.exit_code == 0, ran.output
    assert own_files(project) == {"my_here.env", "default"}
    assert (project.root / "cluster_jobs/sites/default").read_text() == "my_here\n"
    assert "Dry run: nothing was written or started." in ran.output
    assert "cluster_jobs/submit lab1_seq2seq --site my_here --wait" in ran.output
    assert not (project.root / "runs").exists()


def test_questions_are_put_again_until_the_answer_can_be(project, at, nodes):
    """Template, queue, account's option and value, level, GPUs, how, most nodes, longest, ..."""
    typed = [
        "moon",
        "",
        "dya",
        "day",
        "-P {}",
        "gr9",
        "gpu",
        "four",
        "4",
        "-",
        "",
        "1:00",
        "2:00:00",
    ]
    typed += ["", "", "", "", "", "/big", "my site", "mine", "y"]
    ran = at("init", typed="\n".join(typed) + "\n", node=nodes.pbs)
    assert ran.exit_code == 0, ran.output
    assert "TEMPLATE was given as 'moon'" in ran.output
    assert "The scheduler lists no dya. Give the same again to keep it." in ran.output
    assert "The name was given as 'my site'" in ran.output
    assert "GPUS_PER_NODE was given as 'four'. Write it like 4." in ran.output
    assert "TIME_MAX was given as '1:00'. Write it like 24:00:00." in ran.output
    jobs = folder.Jobs(project.root / "cluster_jobs")
    values = jobs.values("my_mine", {"PATH": os.environ["PATH"]})
    assert (values["QUEUE"], values["ACCOUNT_OPTION"], values["ACCOUNT"]) == ("day", "-P {}", "gr9")
    assert (values["GPUS_PER_NODE"], values["GPU_OPTION"], values["SCRATCH"]) == ("4", "", "/big")
    assert values["TIME_MAX"] == "2:00:00"


def test_a_queue_that_is_not_listed_is_taken_when_it_is_given_twice(project, at, nodes):
    typed = ["", "hidden", "hidden", "-", "cpu", *[""] * 10]
    ran = at("init", "--name", "x", typed="\n".join(typed) + "\n", node=nodes.pbs)
    assert "The scheduler lists no hidden." in ran.output
    assert "qsub -q hidden " in ran.output


def test_the_second_time_the_own_file_is_the_nearest_and_its_head_stays(project, at, nodes):
    settings = ("TEMPLATE=pbs-generic", "QUEUE=day", "ACCOUNT_OPTION=-P {}", "ACCOUNT=gr9")
    limits = ("TIME_MAX=2:00:00", "LEVEL=cpu")
    words = [word for setting in settings + limits for word in ("--set", setting)]
    assert at("init", "--yes", "--name", "x", *words, node=nodes.pbs).exit_code == 0
    path = project.root / "cluster_jobs/sites/my_x.env"
    path.write_text("# Seen on Monday: all well.\n" + path.read_text())
    before = path.read_text()
    ran = at("init", typed="\n" * 14 + "y\n", node=nodes.pbs)
    assert ran.exit_code == 0, ran.output
    assert path.read_text() == before


def test_a_site_that_is_exported_counts_more_and_that_is_said(project, at, monkeypatch):
    monkeypatch.setenv("ALLHANDS_SITE", "local")
    ran = at("init", "--yes", "--name", "x", "--set", "LEVEL=cpu")
    assert "ALLHANDS_SITE=local is exported here, and counts more" in ran.output


def test_the_proposed_name_is_the_clusters_else_the_own_files(project, at, nodes):
    settings = ("LEVEL=cpu", "TIME_MAX=1:00:00")
    words = [word for setting in settings for word in ("--set", setting)]
    assert at("init", "--yes", *words, node=nodes.slurm).exit_code in (0, 1)
    assert own_files(project) == {"my_blue-fir.env", "default"}
    (project.root / "cluster_jobs/sites/my_blue-fir.env").rename(
        project.root / "cluster_jobs/sites/my_oak.env"
    )
    (project.root / "cluster_jobs/sites/default").write_text("my_oak\n")
    at("init", "--yes", "--overwrite", *words, node=nodes.slurm)
    assert own_files(project) == {"my_oak.env", "default"}


def test_answers_may_come_from_a_file_and_one_word_changes_one_of_them(project, at, tmp_path):
    file = tmp_path / "answers"
    file.write_text("# ours\nTEMPLATE=pbs-generic\nQUEUE=long\nACCOUNT=gr1\nNODES_MAX=2\n")
    ran = at("init", "--yes", "--name", "x", "--answers", str(file), "--set", "ACCOUNT=gr2")
    assert ran.exit_code == 0, ran.output
    assert "qsub -q long -A gr2 " in ran.output


def test_what_submit_refuses_is_code_1_and_says_what_to_mend(project, at):
    ran = at("init", "--yes", "--name", "x", "--set", "TEMPLATE=pbs-generic", "--set", "QUEUE=long")
    assert ran.exit_code == 1
    assert "wants the account as -A {}, but ALLHANDS_ACCOUNT is empty" in ran.output
    assert "Mend what it says in cluster_jobs/sites/my_x.env" in ran.output


def test_nothing_is_replaced_without_asking(project, at):
    assert at("init", "--yes", "--name", "a", "--set", "LEVEL=cpu").exit_code == 0
    sites = project.root / "cluster_jobs/sites"
    before = (sites / "my_a.env").read_text()
    ran = at("init", "--yes", "--name", "a", "--set", "LEVEL=gpu")
    assert ran.exit_code == 2
    assert "my_a.env is there already. Give another --name or --overwrite." in ran.output
    assert at("init", "--yes", "--name", "b", "--set", "LEVEL=gpu").exit_code == 0
    assert (sites / "default").read_text() == "my_a\n", "the choice stays, too"
    no = at("init", "--name", "a", "--set", "TEMPLATE=local", typed="\n" * 9 + "n\n")
    assert no.exit_code != 0
    assert (sites / "my_a.env").read_text() == before
    assert at("init", "--yes", "--name", "a", "--set", "LEVEL=gpu", "--overwrite").exit_code == 0
    assert (sites / "my_a.env").read_text() != before


def test_an_end_of_the_answers_leaves_nothing_written(project, at, nodes):
    ran = at("init", typed="pbs-generic\nlong\n", node=nodes.pbs)
    assert ran.exit_code == 130
    assert "Interrupted: nothing was written." in ran.output
    assert own_files(project) == set()


def test_ctrl_c_in_a_question_leaves_nothing_written(project):
    command = [sys.executable, "-m", "allhands.cli", "site", "init"]
    with subprocess.Popen(
        command,
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        running.stdin.write("local\n")
        running.stdin.flush()
        seen = ""
        while "What the labs train on" not in seen:
            letter = running.stdout.read(1)
            assert letter, running.stderr.read()
            seen += letter
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted: nothing was written." in errors
    assert own_files(project) == set()


def test_show_says_where_each_value_comes_from(project, at, monkeypatch):
    project.site(
        "my_x",
        "ALLHANDS_SCHEDULER=slurm\nALLHANDS_QUEUE=${ALLHANDS_QUEUE:-long}\nNCCL_DEBUG=WARN\n"
        "ALLHANDS_ACCOUNT=${ALLHANDS_ACCOUNT:-a}\n",
    )
    (project.root / "cluster_jobs/sites/default").write_text("my_x\n")
    monkeypatch.setenv("ALLHANDS_QUEUE", "short")
    lines = re.sub(" +", " ", at("show").output).splitlines()
    file = "cluster_jobs/sites/my_x.env"
    assert lines[0] == f"site my_x (named in cluster_jobs/sites/default): {file}"
    assert f"ALLHANDS_SCHEDULER slurm ({file}:1)" in lines
    assert f"ALLHANDS_QUEUE short (exported in your shell (the default: {file}:2))" in lines
    assert f"NCCL_DEBUG WARN ({file}:3, for the trainer)" in lines
    assert f"ALLHANDS_ACCOUNT a ({file}:4)" in lines
    assert "ALLHANDS_MODULES" in lines[-1]
    missing = at("show", "moon")
    assert missing.exit_code == 2
    assert "There is no site 'moon'" in missing.output


def test_check_ends_with_1_if_something_is_bad_and_tries_the_dry_run(project, at, nodes):
    project.site("my_x", "ALLHANDS_SCHEDULER=none\nALLHANDS_LEVEL=cpu\nALLHANDS_LAUNCHER=bash\n")
    good = at("check", "my_x", node=nodes.Fake(programs=("bash",)))
    assert good.exit_code == 0, good.output
    project.site("my_x", "ALLHANDS_SCHEDULER=none\nALLHANDS_SCRATCH=/no/such\n")
    bad = at("check", "my_x")
    assert bad.exit_code == 1
    assert "/no/such cannot be written" in bad.output
    assert "good      dry run of lab1_seq2seq" in bad.output


def test_without_a_clone_it_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="There is no folder cluster_jobs at or above"):
        folder.Jobs.find(tmp_path, clone=tmp_path)


def test_the_commands_stand_in_the_command_line():
    ran = subprocess.run(
        [sys.executable, "-m", "allhands.cli", "site", "--help"], capture_output=True, text=True
    )
    assert all(word in ran.stdout for word in ("init", "show", "check"))
