"""Reading logs: any encoding and size; what is no log gets one sentence and exit code 2."""

import bz2
import gzip
import json
import lzma
import os

import pytest
from typer.testing import CliRunner

from allhands import triage
from allhands.cli import app
from allhands.triage.gather import WHOLE_AT_START
from allhands.triage.read import BLOCK_BYTES, blocks, decoded, rank_of_file

LOG = (
    "[1,0]<stdout>:rank 0 of 2\n"
    "[1,1]<stdout>:rank 1 of 2\n"
    "[1,1]<stderr>:Traceback (most recent call last):\n"
    '[1,1]<stderr>:  File "kelp.py", line 3, in <module>\n'
    "[1,1]<stderr>:    main()\n"
    "[1,1]<stderr>:OSError: [Errno 28] デバイスに空き領域がありません: 'out.npz'\n"
    "[1,0]<stdout>:waiting in allreduce\n"
)


def ask(*args: object):
    return CliRunner().invoke(app, ["triage", *map(str, args)])


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp932", "euc_jp"]
)
def test_every_encoding_gives_the_same_answer(encoding, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(LOG.encode(encoding))
    answer = triage.triage([log])
    assert answer.root_ranks == (1,)
    assert answer.message == "[Errno 28] デバイスに空き領域がありません: 'out.npz'"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_logs_are_read_whatever_their_name(pack, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(pack(LOG.encode()))
    assert triage.triage([log]).root_ranks == (1,)


def test_windows_line_ends_colours_and_zero_bytes_change_nothing(tmp_path):
    log = tmp_path / "a.log"
    text = LOG.replace("OSError", "\x1b[31m\x1b[1mOSError\x1b[0m").replace("main", "ma\0in")
    log.write_bytes(text.replace("\n", "\r\n").encode())
    answer = triage.triage([log])
    assert (answer.root_error_class, answer.root_ranks) == ("OSError", (1,))


def test_latin_1_is_read_where_it_is_no_utf_8():
    assert decoded("Gerät".encode("latin-1")) == "Gerät"
    assert decoded("Gerät".encode()) == "Gerät"


def test_line_numbers_are_those_of_an_editor(tmp_path):
    log = tmp_path / "a.log"
    text = "a\r10%\r20%\nb\n\nc"
    log.write_text(text)
    found = [first + i for first, data in blocks(log) for i in range(data.count(b"\n") + 1)]
    assert found == [1, 2, 3, 4]


def test_blocks_hold_all_bytes_of_a_log_larger_than_one(tmp_path):
    log = tmp_path / "a.log"
    line = b"x" * 100 + b"\n"
    count = 3 * BLOCK_BYTES // len(line)
    log.write_bytes(line * count)
    numbers, size = [], 0
    for first, data in blocks(log):
        numbers.append(first)
        size += len(data) + 1
    assert size == len(line) * count
    assert numbers[0] == 1
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 2


def test_a_failure_deep_in_a_large_log_is_found_with_its_line(tmp_path):
    log = tmp_path / "a.log"
    before = 40 * WHOLE_AT_START
    with log.open("w") as file:
        for step in range(before):
            file.write(f"[1,{step % 2}]<stdout>:epoch 1 step {step} loss {1 / (step + 1):.6f}\n")
        file.write(LOG)
        for step in range(before):
            file.write(f"[1,0]<stdout>:epoch 2 step {step} loss {1 / (step + 1):.6f}\n")
    answer = triage.triage([log])
    assert (answer.root_error_class, answer.root_ranks) == ("OSError", (1,))
    assert answer.evidence[0].place == f"a.log:{before + 6}"


def test_a_line_that_came_often_before_still_ends_a_traceback(tmp_path):
    """In a large log what repeats is passed over, but never the end of a failure."""
    log = tmp_path / "a.log"
    with log.open("w") as file:
        for step in range(10 * WHOLE_AT_START):
            file.write(f"[1,{step % 2}]<stdout>:epoch 1 step {step} loss {1 / (step + 1):.6f}\n")
            if step % 100 == 0:
                file.write(f"[1,0]<stdout>:ValueError: tile {step} is left out\n")
        for text in ("Traceback (most recent call last):", '  File "a.py", line 3, in f'):
            file.write(f"[1,1]<stderr>:{text}\n")
        file.write("[1,1]<stderr>:ValueError: tile 7 is left out\n")
        file.write("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n")
    answer = triage.triage([log])
    assert (answer.root_error_class, answer.message) == ("ValueError", "tile 7 is left out")
    assert answer.root_ranks == (1,)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.log", b"", "holds no text"),
        ("blank.log", b"\n \n", "holds no text"),
        ("binary.log", bytes(range(256)) * 40, "is not text"),
        ("half.gz", gzip.compress(LOG.encode() * 500)[:-200], "cut short"),
        ("wrong.gz", b"\x1f\x8b" + b"no gzip at all" * 9, "broken"),
    ],
)
def test_what_is_no_log_gets_one_sentence_and_exit_code_2(name, data, said, tmp_path):
    log = tmp_path / name
    log.write_bytes(data)
    done = ask(log)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("\n") == 1
    assert done.output.startswith("allhands: ")
    assert isinstance(done.exception, SystemExit)


def test_a_missing_file_and_a_folder_get_one_sentence(tmp_path):
    for path, said in ((tmp_path / "no.log", "There is no file"), (tmp_path, "is a folder")):
        done = ask(path)
        assert done.exit_code == 2
        assert said in done.output
        assert done.output.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_gets_one_sentence(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(LOG)
    log.chmod(0)
    done = ask(log)
    assert done.exit_code == 2
    assert "may not be read" in done.output


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3_000_000,
        "[1,0]<stderr>: " * 200_000,
        "\r".join(f" 10%|█ | {i}/400 [00:01<00:02, 3it/s]" for i in range(40_000)),
        "Traceback (most recent call last):\n" * 3000,
        "[99999999999] a\n[1] b\nrank 99999999999 of 1\nworld size 9999999999999\n",
        "0: \n1: \n2: \n",
        "Error\nError:\n: Error\nKeyError: \n",
    ],
    ids=["one line", "labels only", "bars", "headers", "large numbers", "empty lines", "scraps"],
)
def test_strange_text_is_answered(text, tmp_path):
    log = tmp_path / "a.log"
    log.write_text(text)
    done = ask(log, "--json")
    assert done.exit_code in (0, 1)
    assert json.loads(done.stdout)["world_size"] >= 1


def test_exit_codes_json_and_page(tmp_path):
    log, good, page = tmp_path / "a.log", tmp_path / "good.log", tmp_path / "a.html"
    log.write_text(LOG)
    good.write_text("0: epoch 1 loss 0.5\n1: epoch 1 loss 0.4\n0: done\n1: done\n")
    done = ask(log, "--json", "--html", page)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["root_ranks"] == [1]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert ask(good).exit_code == 0
    assert "No failure found" in ask(good).output


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("logs/1/rank.3/stderr", 3),
        ("logs/attempt_0/2/stderr.log", 2),
        ("rank0.log", 0),
        ("out.5", 5),
        ("slurm-881-7.out", 7),
        ("train.log", None),
        ("2026/train.log", None),
    ],
)
def test_the_rank_in_a_file_name(name, rank, tmp_path):
    assert rank_of_file(tmp_path / name) == rank
