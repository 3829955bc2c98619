"""A box: its hosts and its Slurm, commands in it, and that nothing is left, however it ends."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allhands import box as boxes
from allhands.box import place

CLI = (sys.executable, "-m", "allhands.cli", "box")
NOBODY = 65534
WORLD = (
    "from mpi4py import MPI; import socket; "
    "print(MPI.COMM_WORLD.size, sorted(MPI.COMM_WORLD.allgather(socket.gethostname())))"
)


def said(cluster: boxes.Box, *words: str, host: str = "ctl") -> str:
    ran = cluster.run(words, host=host, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


# ---- the hosts and their Slurm ----


def test_each_host_has_a_name_an_address_and_shared_memory_of_its_own(box):
    assert box.hosts == ("n1", "n2")
    hosts = {"ctl": "10.77.0.254", "n1": "10.77.0.1", "n2": "10.77.0.2"}
    for host, address in hosts.items():
        own = said(
            box, "sh", "-c", "ls /dev/shm; touch /dev/shm/$(hostname); hostname -I", host=host
        )
        assert own == address, "and the file of the host before is not there"
    assert not {*hosts} & {*os.listdir("/dev/shm")}


def test_slurm_starts_tasks_on_both_nodes(box):
    assert sorted(said(box, "srun", "-N2", "-n2", "hostname").split()) == ["n1", "n2"]


def test_slurm_gives_out_the_gpus(box):
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert said(box, "srun", "-N1", "--gres=gpu:2", *show) == "0,1"
    assert said(box, "srun", "-N2", "-n2", "--gpus-per-node=4", *show).split() == ["0,1,2,3"] * 2
    assert said(box, "srun", "-N1", *show) == ""
    too_many = box.run(["srun", "-N1", "--gres=gpu:5", "true"], capture_output=True, text=True)
    assert too_many.returncode != 0


def test_ranks_on_two_nodes_are_one_world(box):
    words = ["srun", "--mpi=pmi2", "-N2", "-n2", sys.executable, "-c", WORLD]
    assert said(box, *words).splitlines() == ["2 ['n1', 'n2']"] * 2


def test_jobs_that_name_no_memory_share_a_node(box, tmp_path):
    """Each of two jobs on n1 waits for the other to begin: one after the other they never end."""
    wait = f"touch {tmp_path}/$0; until [ -e {tmp_path}/$1 ]; do sleep 0.01; done"
    running = [
        subprocess.Popen(
            box.command(["srun", "-t1", "-n1", "-wn1", "sh", "-c", wait, *names]),
            env=box.environ(),
        )
        for names in (("a", "b"), ("b", "a"))
    ]
    assert [one.wait(60) for one in running] == [0, 0]


def test_every_queue_of_a_site_file_is_a_partition(box):
    listed = said(box, "sinfo", "--noheader", "--format=%R").split()
    assert {"debug", "gpu"} <= set(listed)
    sites = Path(__file__).parents[2] / "cluster_jobs" / "sites"
    texts = [path.read_text() for path in sites.glob("*.env")]
    assert all(any(f":-{name}}}" in text for text in texts) for name in {*listed} - {"gpu"})


def test_a_box_without_a_link_has_no_net0(box):
    assert "net0" not in os.listdir("/sys/class/net")
    assert "net0" not in said(box, "ls", "/sys/class/net", host="n1").split()
    assert "ALLHANDS_BOX_NETWORK" not in box.environ()


# ---- commands in a box ----


@pytest.mark.parametrize("code", [7, 255])
def test_sh_passes_the_exit_code_on(box, allhands, code):
    assert allhands("sh", "--name", box.name, "--", "sh", "-c", f"exit {code}").returncode == code


def test_sh_says_what_cannot_be_run(box, allhands):
    ran = allhands("sh", "--name", box.name, "--", "no-such-command")
    assert (ran.returncode, ran.stderr) == (
        127,
        "allhands: no-such-command: No such file or directory\n",
    )
    ran = box.run([""], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (127, "allhands: : not a command\n")
    ran = allhands("sh", "--name", box.name, "--host", "n9")
    assert ran.returncode == 2
    assert "has no host 'n9'. Its hosts: ctl, n1, n2" in ran.stderr


def test_in_a_folder_that_was_removed_it_says_so_and_status_answers(box, tmp_path):
    """A login shell may stand in a folder that another one has removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    words = [*CLI, "status", "--name", box.name], [*CLI, "sh", "--name", box.name, "--", "pwd"]
    status, sh = (
        subprocess.run(
            ["sh", "-c", 'rmdir "$0"; "$@"; code=$?; mkdir "$0"; exit $code', gone, *command],
            cwd=gone,
            capture_output=True,
            text=True,
        )
        for command in words
    )
    assert status.returncode == 0, status.stderr
    assert "n1" in status.stdout
    assert sh.returncode == 1
    assert sh.stderr == "allhands: This folder has been removed. Go into another one: cd\n"


def test_sh_keeps_folder_input_and_words(box, allhands, tmp_path):
    words = ("sh", "-c", 'pwd; cat; echo "$@"', "sh", "a b", "--", "*")
    ran = allhands("sh", "--name", box.name, "--", *words, cwd=tmp_path, input="read\n")
    assert ran.stdout == f"{tmp_path}\nread\na b -- *\n"


def test_data_of_any_kind_pass_through(box):
    data = bytes(range(256)) * 4096
    ran = box.run(["cat"], input=data, capture_output=True, timeout=60)
    assert ran.stdout == data


def test_a_pipe_that_closes_ends_who_writes_into_it_without_a_word(box):
    """As in a shell. Python ignores SIGPIPE, and what it starts would inherit that."""
    ran = box.run(["sh", "-c", "yes | head -n 1"], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("y\n", "")


def test_without_a_command_sh_is_a_shell_on_that_host(box, allhands):
    ran = allhands("sh", "--name", box.name, "--host", "n2", input="hostname; exit 3\n")
    assert (ran.stdout, ran.returncode) == ("n2\n", 3)


def begin(box, script: str, **options) -> subprocess.Popen:
    command = [*CLI, "sh", "--name", box.name, "--", "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


WAIT = "echo ready; while :; do sleep 0.02; done"


def test_a_signal_reaches_the_command_once(box):
    running = begin(box, f"trap 'echo got' USR1; trap 'echo end; exit 5' TERM; {WAIT}")
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGUSR1)
    assert running.stdout.readline() == "got\n"
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=60)[0] == "end\n"
    assert running.returncode == 5


def test_a_command_that_a_signal_ends_gives_a_shells_code(box):
    running = begin(box, WAIT)
    running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 128 + signal.SIGTERM


def test_a_command_ends_with_the_one_that_called_it(box):
    running = begin(box, WAIT)
    running.stdout.readline()
    running.kill()
    running.wait()
    assert running.stdout.read() == ""  # all that held the other end have ended


def test_ctrl_c_reaches_the_command_once(box):
    script = f"trap 'echo caught; exit 9' INT; {WAIT}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(CLI[0], [*CLI, "sh", "--name", box.name, "--", "sh", "-c", script])
    text = b""
    while b"ready" not in text:
        text += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    try:
        while more := os.read(terminal, 1024):
            text += more
    except OSError:  # how a terminal says that nobody is there any more
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert text.count(b"caught") == 1


def test_under_sudo_shell_and_jobs_are_the_users(box, allhands):
    environ = {**os.environ, "SUDO_UID": str(NOBODY)}
    script = "id -u; srun -N2 id -u; echo $USER"
    ran = allhands("sh", "--name", box.name, "--", "sh", "-c", script, env=environ, cwd="/")
    assert ran.stdout.split() == [str(NOBODY)] * 3 + ["nobody"]
    ran = allhands("sh", "--root", "--name", box.name, "--", "id", "-u", env=environ)
    assert ran.stdout == "0\n"


def test_variables_of_a_job_outside_do_not_reach_the_box(box, monkeypatch):
    """Nor those of the MPI that may have started this process."""
    names = ["SLURM_JOB_ID", "PBS_NODEFILE", "PJM_JOBID", "SGE_TASK_ID", "JOB_ID"]
    names += ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"]
    for name in (*names, "MINE"):
        monkeypatch.setenv(name, "12")
    there = {line.partition("=")[0] for line in said(box, "env").splitlines()}
    assert not {*names} & there
    assert "MINE" in there


# ---- status ----


def submitted(cluster, until, *words) -> str:
    """The id of a job that runs."""
    job = said(cluster, "sbatch", "--parsable", "--output=/dev/null", *words)
    until(lambda: said(cluster, "squeue", "--noheader", "--format=%t", f"--jobs={job}") == "R")
    return job


def test_status_shows_nodes_jobs_and_no_link(box, allhands, until):
    job = submitted(box, until, "-N2", "-J", "long|name", "--wrap", "sleep 300")
    [told] = json.loads(allhands("status", "--json", "--name", box.name).stdout)
    table = allhands("status", "--name", box.name).stdout
    said(box, "scancel", job)
    assert (told["name"], told["init_pid"], told["link"]) == (box.name, box.init_pid, None)
    assert {node["name"]: node["cpus_busy"] for node in told["nodes"]} == {"n1": 1, "n2": 1}
    [mine] = [one for one in told["jobs"] if one["job_id"] == job]
    assert (mine["state"], mine["where"], mine["name"]) == ("RUNNING", "n[1-2]", "long|name")
    assert "n1" in table
    assert "RUNNING" in table


def test_a_slurm_that_does_not_answer_is_said_and_its_box_is_not_denied(
    box, allhands, monkeypatch, tmp_path
):
    """`sinfo` that fails, in front of the real one."""
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho nobody there >&2\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for words in ((), ("--name", box.name)):
        ran = allhands("status", *words)
        assert ran.returncode == 2
        assert "did not answer: nobody there. Its logs are in" in ran.stderr
        assert "No box is up" not in ran.stdout


def test_a_box_can_be_asked_and_entered_from_inside(box):
    [told] = json.loads(said(box, *CLI, "status", "--json", "--name", box.name, host="n1"))
    assert told["init_pid"] == 1
    words = [*CLI, "sh", "--name", box.name, "--host", "n2", "--", "hostname"]
    assert said(box, *words, host="n1") == "n2"


def test_a_box_in_a_box_is_not_mistaken_for_one_of_this_machine(box, ended):
    """Its first process has another number here: ending that number would end somebody else."""
    said(box, *CLI, "up", "--name", ended, "--nodes", "1")
    with pytest.raises(boxes.BoxError, match="was started in another container or box"):
        boxes.find(ended)
    said(box, *CLI, "down", "--name", ended)
    assert not place.folder_of(ended).exists()


# ---- what cannot be done is refused in a sentence ----


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"nodes": 0}, "asked to have 0 nodes. Give a whole number from 1 to 64"),
        ({"nodes": 300}, "asked to have 300 nodes"),
        ({"gpus": -1}, "asked to have -1 GPUs a node"),
        ({"rate": "fast"}, "rate 'fast' was not understood. Write a number and a unit"),
        ({"rate": "1gbps"}, "rate '1gbps' was not understood"),
        ({"rate": "nan"}, "rate 'nan' was not understood"),
        ({"rate": "0"}, "rate was asked to be 0"),
        ({"rate": "100gbit"}, "it can do 100kbit to 10gbit"),
        ({"delay": "5"}, "delay was asked to be 5 (5 s). Give at most 1 s"),
        ({"delay": "-1ms"}, "delay '-1ms' was not understood"),
        ({"name": "../etc"}, "name is up to 24 letters"),
        ({"name": "x" * 25}, "name is up to 24 letters"),
        ({"name": ""}, "name is up to 24 letters"),
        ({"name": "a\n"}, "name is up to 24 letters"),
    ],
)
def test_a_box_that_cannot_be_is_refused(asked, sentence):
    with pytest.raises(boxes.BoxError, match=re.escape(sentence)):
        boxes.asked.ask(**{"name": "a", "nodes": 1, "gpus": 0, **asked})


def test_a_refusal_is_one_sentence_and_code_2(allhands):
    ran = allhands("up", "--delay", "5")
    assert ran.returncode == 2
    assert ran.stderr.startswith("allhands: The link's delay was asked to be 5 (5 s).")
    assert len(ran.stderr.splitlines()) == 1


def test_rates_and_delays_are_text_with_units_or_numbers():
    ask = boxes.asked.ask
    assert ask("a", 1, 0, "1gbit", "250us") == ask("a", 1, 0, 1e9, 250e-6)
    assert ask("a", 1, 0, "0.1 Gbit", ".5ms") == ask("a", 1, 0, "100000kbit", "500us")
    assert ask("a", 1, 0, delay=0).shaped
    assert not ask("a", 1, 0).shaped


def test_a_second_box_of_the_same_name_is_refused(box, allhands):
    ran = allhands("up", "--name", box.name, "--nodes", "1")
    assert ran.returncode == 2
    assert f"A box named '{box.name}' is up or coming up." in ran.stderr
    assert said(box, "hostname") == "ctl"


def test_a_box_that_is_not_up_is_named_and_how_to_start_it(allhands, box):
    for words in (["down"], ["sh"], ["status"]):
        ran = allhands(*words, "--name", "nowhere")
        assert ran.returncode == 2
        assert "No box named 'nowhere' is up." in ran.stderr
        assert box.name in ran.stderr
        assert "allhands box up --name nowhere" in ran.stderr


def test_two_boxes_at_once_do_not_meet(box, box_name):
    with boxes.up(f"{box_name}-other", nodes=1, gpus=1) as other:
        assert said(other, "hostname", "-I", host="n1") == said(box, "hostname", "-I", host="n1")
        assert said(other, "sinfo", "--noheader", "-N", "-pdebug", "--format=%N") == "n1"
        assert said(other, "srun", "-N1", "hostname") == "n1"
        assert {box.name, other.name} <= set(place.names())
    assert sorted(said(box, "srun", "-N2", "hostname").split()) == ["n1", "n2"]
