"""Lab 0: checks refuse likely mistakes with the sentence meant for them, and take right answers.

The notebook itself runs in test_nbval.py, and blank and solved in test_nbgrader.py.
"""

import os
import select
import time

import numpy as np
import pytest

from allhands.doctor.machine import Machine
from allhands.grade import convert, source
from allhands.grade.checks.lab0_doctor_played import run_script
from allhands.grade.desk import Desk
from allhands.launch import by_script
from allhands.launch.job_header import header, limit_s
from allhands.mgwfbp.fit import fit
from allhands.train import ping_pong, rank_place


@pytest.fixture
def desk() -> Desk:
    return Desk("lab0_doctor")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- here ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "answer", "sentence"),
    [
        (4, {"cores": 8, "threads": 2}, "the line `cores` of the doctor's report"),
        (4, {"cores": 4, "threads": 4}, "twice as many threads as cores"),
        (1, {"cores": 1, "threads": 0}, "no rank can work with 0 threads"),
        (4, {"cores": 4, "threads": 1}, "share the cores out"),
        (4, {"cores": 4}, "a dict with cores, threads"),
        (4, {"cores": "4 cores", "threads": 2}, "write the numbers alone"),
    ],
)
def test_here_refuses(desk, monkeypatch, cores, answer, sentence):
    monkeypatch.setattr(Machine, "cores", lambda self: cores)
    refused(desk.check("here", answer), sentence)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 1), (16, 8)])
def test_here_takes_what_the_machine_has(desk, monkeypatch, cores, threads):
    monkeypatch.setattr(Machine, "cores", lambda self: cores)
    assert desk.check("here", {"cores": cores, "threads": threads}).full


# --- script --------------------------------------------------------------------------------------


def of_notebook(which: str) -> str:
    """The script as the notebook gives it ("faulty"), or as its solution has it ("repaired")."""
    cell = next(c for c in source.solved_notebook("lab0_doctor").cells if c.id == "script")
    code = cell.source if which == "repaired" else convert.given_instead(cell.source.rstrip())
    names: dict = {}
    exec(code, names)
    return names["script"]


GOOD = of_notebook("repaired")
SCRIPTS = {
    "a space": (GOOD.replace("#SBATCH --nodes", "# SBATCH --nodes"), "is a comment: `#SBATCH`", 1),
    "late": (
        GOOD.replace("#SBATCH --nodes=2\n", "").replace('n"\n', 'n"\n#SBATCH --nodes=2\n'),
        "headers after the first command do not count: move --nodes up",
        1,
    ),
    "ten seconds": (GOOD.replace("00:10:00", "00:10"), "minutes:seconds, so ten seconds", 1),
    "no limit": (GOOD.replace("#SBATCH --time=00:10:00\n", ""), "no time limit", 1),
    "one node": (GOOD.replace("--nodes=2", "--nodes=1"), "how many nodes does it ask for?", 1),
    "four each": (GOOD.replace("-node=2", "-node=4"), "`--ntasks-per-node=2`", 1),
    "an echo": (GOOD + "echo done\n", "that of its last command: which one is it?", 1),
    "exit 1": (GOOD + "exit 7\n", "a program that ends well is a job that ends well", 1),
    "no srun": (GOOD.replace("srun ", "true "), "start the program with `srun`", 1),
    "words": (GOOD.replace("-node=2", "-node=two"), "`--ntasks-per-node=2`", 1),
    "eight": (GOOD.replace("#SBATCH --nodes=2", "#SBATCH -N2 -n 8"), "`--ntasks-per-node=2`", 1),
    "no script": ("srun python train.py", "its first line is `#!/bin/bash`", 0),
}


@pytest.mark.parametrize("mistake", SCRIPTS)
def test_script_refuses(desk, mistake):
    script, sentence, score = SCRIPTS[mistake]
    verdict = desk.check("script", script)
    refused(verdict, sentence)
    assert verdict.score == score


def test_the_given_script_asks_for_less_and_hides_a_failure_and_the_repaired_one_does_not(desk):
    faulty = of_notebook("faulty")
    assert header(faulty) == {"--job-name": "first", "--time": "00:10"}
    assert limit_s("00:10") == 10
    assert run_script(faulty, 7).code == 0
    assert desk.check("script", faulty).score == 0
    assert header(GOOD)["--nodes"] == "2"
    assert run_script(GOOD, 7).code == 7
    assert desk.check("script", GOOD).full


@pytest.mark.parametrize(
    "script",
    [
        GOOD + "code=$?\necho done\nexit $code\n",
        GOOD.replace("--time=00:10:00", "--time=10"),
        GOOD.replace("--ntasks-per-node=2", "--ntasks=4"),
        GOOD.replace("#SBATCH --nodes=2", "#SBATCH -N 2"),
        GOOD.replace("#SBATCH --nodes=2", '#SBATCH -N2 --comment="two nodes"'),
        GOOD.replace("#SBATCH --nodes=2", "#SBATCH --nodes=2 --ntasks=4"),
        GOOD.replace("srun", "set -e\nsrun") + "echo done\n",
        GOOD.replace("srun", "exec srun"),
    ],
)
def test_script_takes_other_right_ways(desk, script):
    assert desk.check("script", script).full


def test_what_a_script_leaves_in_the_background_ends_with_it(desk, tmp_path):
    held = tmp_path / "held"
    os.mkfifo(held)
    end = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    assert desk.check("script", GOOD.replace("srun", f"sleep 600 > {held} &\nsrun")).full
    select.select([end], [], [], 60)  # until nobody can write there any more
    assert os.read(end, 1) == b""
    os.close(end)


# --- job -----------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in which one job of two ranks has run."""
    monkeypatch.setattr(by_script, "PROJECT", tmp_path)
    folder = tmp_path / "runs" / "lab0_doctor" / "1"
    folder.mkdir(parents=True)
    (folder / "places.txt").write_text("rank 0\nrank 1\n")
    (folder / "link.csv").write_text("n_bytes,time_s\n")
    (tmp_path / "runs" / "jobs").mkdir()
    (tmp_path / "runs" / "jobs" / "a.log").write_text("[job] job 1 ended with exit code 0. Run")
    (tmp_path / "runs" / "jobs" / "b.log").write_text("[job] job 2, part 1")
    (tmp_path / "runs" / "jobs" / "c.log").write_text(
        "[job] job 3 ended with exit code 0. Run folder: runs/lab0_doctor/3\n"
    )
    (tmp_path / "runs" / "jobs" / "d.log").write_text("[job] job 4 ended with exit code 1. Run")
    return tmp_path


JOB = {"exit_code": 0, "ranks": 2, "log": "runs/jobs/a.log", "run_folder": "runs/lab0_doctor/1"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"exit_code": 1}, "it stands in the last line of the log"),
        ({"exit_code": "0"}, "write it without quotes"),
        ({"log": "runs/jobs/a.job"}, "that is the note; the log ends in `.log`"),
        ({"log": "a.log"}, "there is no such file"),
        ({"log": "runs/jobs/b.log"}, "this job has not ended yet"),
        ({"run_folder": "runs/jobs"}, "each job has a run folder as well"),
        ({"run_folder": "runs/lab0_doctor/2"}, "what stands behind `Run folder:`"),
        ({"ranks": 1}, "one for each rank"),
        ({"ranks": "2"}, "without quotes"),
        (
            {"log": "runs/jobs/d.log", "exit_code": 1, "run_folder": "runs/lab0_doctor/4"},
            "this job has failed",
        ),
        ({"log": "runs/jobs/c.log"}, "the log names its own"),
    ],
)
def test_job_refuses(desk, project, change, sentence):
    verdict = desk.check("job", JOB | change)
    refused(verdict, sentence)
    assert verdict.score == 1


def test_job_takes_what_the_job_left_and_wants_all_four(desk, project):
    assert desk.check("job", JOB).full
    numbers = {"exit_code": np.int64(0), "ranks": np.int64(2)}
    paths = {name: str(project / JOB[name]) for name in ("log", "run_folder")}
    assert desk.check("job", numbers | paths).full
    refused(desk.check("job", {"exit_code": 0}), "a dict with exit_code, ranks, log, run_folder")


# --- local_rank ----------------------------------------------------------------------------------


def by_arithmetic(comm, host):
    comm.allgather(host)
    return comm.rank % 2


def first_of_the_host(comm, host):
    return comm.allgather(host).index(host)


def with_itself(comm, host):
    return comm.allgather(host)[: comm.rank + 1].count(host)


def on_rank_0_alone(comm, host):
    return 0 if comm.rank == 0 else comm.allgather(host)[: comm.rank].count(host)


def says_nothing(comm, host):
    comm.allgather(host)


LOCAL_RANKS = {
    "the rank": (lambda comm, host: comm.rank, "the second node begins at 0 again", 0),
    "arithmetic": (by_arithmetic, "only while ranks fill node after node", 1),
    "index": (first_of_the_host, "how many ranks of the host come before?", 0),
    "all of the host": (
        lambda comm, host: comm.allgather(host).count(host),
        "how many ranks the host has",
        0,
    ),
    "from 1": (with_itself, "count from 0", 0),
    "some ranks": (on_rank_0_alone, "all ranks must make the same calls", 0),
    "no return": (says_nothing, "does it end with `return ...`?", 0),
}


@pytest.mark.parametrize("mistake", LOCAL_RANKS)
def test_local_rank_refuses(desk, mistake):
    answer, sentence, score = LOCAL_RANKS[mistake]
    verdict = desk.check("local_rank", answer)
    refused(verdict, sentence)
    assert verdict.score == score


def with_numpy(comm, host):
    return (np.array(comm.allgather(host))[: comm.rank] == host).sum()


def with_gather_and_bcast(comm, host):
    hosts = comm.bcast(comm.gather(host, root=0), root=0)
    return sum(hosts[rank] == host for rank in range(comm.Get_rank()))


@pytest.mark.parametrize("right", [rank_place.local_rank, with_numpy, with_gather_and_bcast])
def test_local_rank_takes_right_ways(desk, right):
    assert desk.check("local_rank", right).full


# --- message -------------------------------------------------------------------------------------


def ping_pong_with(kind=np.uint8, swap=False, trips=0, partner=None, pick=min, share=2):
    """A ping-pong with one thing changed."""

    def message_s(comm, n_bytes, repeats, clock):
        ball, times_s = np.zeros(n_bytes, kind), []
        other = 1 - comm.rank if partner is None else partner
        for _ in range(repeats + trips):
            start_s = clock()
            if comm.rank == 0 or swap:
                comm.Send(ball, dest=other)
                comm.Recv(ball, source=other)
            else:
                comm.Recv(ball, source=other)
                comm.Send(ball, dest=other)
            times_s.append(clock() - start_s)
        return pick(times_s) / share

    return message_s


def rank_0_alone(comm, n_bytes, repeats, clock):
    return ping_pong.message_s(comm, n_bytes, repeats, clock) if comm.rank == 0 else 0.0


def from_any_source(comm, n_bytes, repeats, clock):
    ball, times_s = bytearray(n_bytes), np.zeros(repeats, np.float32)
    for i in range(repeats):
        start_s = clock()
        for step in (comm.rank, 1 - comm.rank):
            comm.Recv(ball) if step else comm.Send(ball, 1 - comm.rank)
        times_s[i] = clock() - start_s
    return times_s.min() / 2


def with_objects(comm, n_bytes, repeats, clock):
    for _ in range(repeats):
        if comm.rank == 0:
            comm.send(np.zeros(n_bytes, np.uint8), dest=1)
            comm.recv(source=1)
        else:
            comm.send(comm.recv(source=0), dest=0)
    return clock()


def with_a_clock_of_its_own(comm, n_bytes, repeats, clock):
    return ping_pong.message_s(comm, n_bytes, repeats, time.perf_counter)


MESSAGES = {
    "objects": (with_objects, "with capitals, move the bytes of an array", 0),
    "another clock": (with_a_clock_of_its_own, "the clock that your function is given", 1),
    "floats": (ping_pong_with(kind=np.float32), "np.zeros(n_bytes, np.uint8)", 0),
    "both send": (ping_pong_with(swap=True), "rank 1 receives first", 0),
    "itself": (ping_pong_with(partner=0), "rank 0 sends to rank 1", 0),
    "once more": (ping_pong_with(trips=1), "one round trip in each of the `repeats` rounds", 0),
    "no answer": (rank_0_alone, "rank 1 must answer", 0),
    "no half": (ping_pong_with(share=1), "a round trip is two messages: halve it", 1),
    "mean": (ping_pong_with(pick=np.mean), "take `min`", 1),
    "max": (ping_pong_with(pick=max), "`min`, not `max`", 1),
    "last": (ping_pong_with(pick=lambda times_s: times_s[-1]), "that is the last one", 1),
    "median": (ping_pong_with(pick=np.median), "min(times_s) / 2", 1),
}


@pytest.mark.parametrize("mistake", MESSAGES)
def test_message_refuses(desk, mistake):
    answer, sentence, score = MESSAGES[mistake]
    verdict = desk.check("message", answer)
    refused(verdict, sentence)
    assert verdict.score == score


@pytest.mark.parametrize("right", [ping_pong.message_s, from_any_source])
def test_message_takes_right_ways(desk, right):
    assert desk.check("message", right).full


# --- link ----------------------------------------------------------------------------------------

SIZES = np.array([4.0**power for power in range(1, 12)])
TIMES_S = (2e-5 + 5e-10 * SIZES) * np.where(np.arange(len(SIZES)) % 2, 1.02, 0.98)
COST = fit(SIZES, TIMES_S).cost
A_S, B_S = COST.startup_s, COST.s_per_byte
LINK = {"startup_us": 1e6 * A_S, "mb_per_s": 1e-6 / B_S, "half_bytes": A_S / B_S}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"startup_us": A_S}, "these are seconds"),
        ({"startup_us": 1e3 * A_S}, "these are milliseconds"),
        ({"startup_us": 1.0}, "1e6 * found.cost.startup_s"),
        ({"mb_per_s": 1e9 * B_S}, "the bandwidth is 1 / b"),
        ({"mb_per_s": 1 / B_S}, "these are bytes a second"),
        ({"mb_per_s": 1 / (2**20 * B_S)}, "2**20 are a MiB"),
        ({"mb_per_s": 8e-6 / B_S}, "these are megabits"),
        ({"half_bytes": B_S / A_S}, "the other way round: a / b"),
        ({"half_bytes": LINK["startup_us"] / LINK["mb_per_s"]}, "mind the units"),
        ({"half_bytes": 4.0}, "solve a = b s for s"),
    ],
)
def test_link_refuses(desk, change, sentence):
    verdict = desk.check("link", LINK | change, SIZES, TIMES_S)
    refused(verdict, sentence)
    assert verdict.score == 1


def test_link_takes_the_fit_of_the_own_table_and_refuses_a_table_without_a_line(desk):
    assert desk.check("link", LINK, SIZES, TIMES_S).full
    refused(desk.check("link", LINK, SIZES, TIMES_S[::-1]), "a table that a straight line fits")


@pytest.mark.parametrize(
    ("exercise", "wrong", "sentence"),
    [
        ("worlds", "c", "Two ranks of one node are 0 and 1"),
        ("worlds", "d", "how many worlds are there?"),
        ("merge", "a", "How much of the time of 1,000 bytes is b s?"),
        ("merge", "b", "The start-up stays, a hundred times"),
    ],
)
def test_wrong_choices_get_their_reply(desk, exercise, wrong, sentence):
    refused(desk.check(exercise, wrong), sentence)


def test_the_choices_of_the_notebook_are_those_of_the_manifest(desk):
    text = "\n".join(cell.source for cell in source.solved_notebook("lab0_doctor").cells)
    for exercise in ("worlds", "merge"):
        for letter, choice in desk.lab.exercise(exercise).choices.items():
            assert f"* **{letter}** {choice}" in text
