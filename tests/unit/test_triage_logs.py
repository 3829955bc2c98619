"""Triage of whole logs: every answer is the truth that stands beside the log.

The numbered logs come with the course's facts about public bug reports; those with `own_` were
written for this test in the launchers' formats; those with `real_` are what real launchers printed
(Open MPI 5.0.11, MPICH 5.0.2, torchrun of torch 2.14, Slurm) when a fault was planted. Their JSON
says which.
"""

import json
from pathlib import Path

import pytest

from allhands import triage

FOLDER = Path(__file__).parent / "triage_logs"
LOGS = sorted(FOLDER.glob("*.log"))
FIELDS = (
    "world_size",
    "root_error_class",
    "root_ranks",
    "culprit_ranks",
    "silent_ranks",
    "duplicate_count",
    "rank_dependent",
    "cause_id",
)


def truth(log: Path) -> dict:
    return json.loads(log.with_suffix(".json").read_text(encoding="utf-8"))


def test_the_logs_are_here():
    assert len([log for log in LOGS if log.name[0].isdigit()]) == 24
    own = [truth(log) for log in LOGS if log.name.startswith("own_")]
    assert len(own) >= 16
    assert all(one["written"].startswith("for this test") for one in own)
    real = [truth(log) for log in LOGS if log.name.startswith("real_")]
    assert {one["launcher"] for one in real} == {"openmpi", "mpich", "srun", "torchrun"}
    assert all(one["written"].startswith("by a real launcher") for one in real)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_the_answer_is_the_truth(log):
    answer, known = triage.triage([log]).as_dict(), truth(log)
    assert {f: answer[f] for f in FIELDS} == {f: known[f] for f in FIELDS}
    assert answer["launcher"].startswith(known["launcher"].split()[0])


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_the_answer_is_whole_sentences_and_says_what_to_try(log):
    answer = triage.triage([log])
    for said in (answer.cause, answer.next_step, answer.verdict):
        assert said.endswith(".")
        assert "{" not in said
    assert answer.failed == (truth(log)["root_error_class"] != "None")
    parts = answer.count
    together = sorted(parts.complete + parts.cut + parts.healthy + parts.silent)
    assert together == list(range(answer.world_size))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_evidence_stands_in_the_log_where_it_says(log):
    lines = log.read_bytes().decode("utf-8", "replace").split("\n")
    for evidence in triage.triage([log]).evidence:
        name, _, number = evidence.place.rpartition(":")
        assert name == log.name
        assert 1 <= int(number) <= len(lines)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_the_report_fits_a_narrow_terminal_and_names_the_cause(log):
    answer = triage.triage([log])
    text = triage.report(answer, width=40)
    assert max(map(len, text.split("\n"))) <= 40
    assert answer.cause_id in text.replace("\n", "").replace("  ", "")


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_the_page_needs_no_network_and_shows_every_rank(log):
    answer = triage.triage([log])
    page = triage.page(answer)
    assert "<script" not in page
    assert 'src="' not in page
    assert "href=" not in page
    assert all(f"rank {rank}" in page for rank in range(answer.world_size))


def test_text_of_the_log_is_escaped_in_the_page(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "0: Traceback (most recent call last):\n"
        '0:   File "a.py", line 1, in <module>\n'
        "0:     <img src=x onerror=alert(1)>\n"
        "0: ValueError: <script>alert(2)</script>\n1: ok\n0: \n"
        "srun: error: n1: task 0: Exited with exit code 1\n"
    )
    page = triage.page(triage.triage([log]))
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_the_json_has_the_field_names_of_the_truth():
    answer = triage.triage([LOGS[0]]).as_dict()
    assert {"launcher", "roots", "secondary_errors", "cause", "next_step", *FIELDS} <= set(answer)
    assert json.loads(json.dumps(answer)) == answer
    assert {"error_class", "signature", "ranks", "count"} <= set(answer["roots"][0])
