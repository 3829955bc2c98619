"""Mutated logs: whatever a file holds, triage answers in whole sentences, or says it is no log.

Each mutant is a log of the folder with up to four changes: lines shuffled, lost, cut, joined or
doubled, bytes and digits changed, a part of another log put in. The seed decides which; a failure
prints it, and `mutant(seed)` makes the same bytes again.
"""

import json
import random
from pathlib import Path

import pytest

from allhands import triage

LOGS = [p.read_bytes() for p in sorted((Path(__file__).parent / "triage_logs").glob("*.log"))]
SEEDS, A_TEST = 160, 20


def _shuffled(draw: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def _lines_lost(draw: random.Random, data: bytes) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") if draw.random() > 0.2)


def _bytes_changed(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 200)):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut_short(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _two_logs(draw: random.Random, data: bytes) -> bytes:
    return data + draw.choice(LOGS)


def _other_ends(draw: random.Random, data: bytes) -> bytes:
    end = draw.choice([b"\r", b"", b"\r\n", b"\n\n"])
    return data.replace(b"\n", end, draw.randint(1, 50))


def _starts_cut(draw: random.Random, data: bytes) -> bytes:
    return b"\n".join(line[draw.randint(0, 12) :] for line in data.split(b"\n"))


def _digits_changed(draw: random.Random, data: bytes) -> bytes:
    digits = b"0123456789"
    other = {d: draw.choice(digits) for d in digits if draw.random() < 0.4}
    return data.translate(bytes(other.get(i, i) for i in range(256)))


def _part_of_another(draw: random.Random, data: bytes) -> bytes:
    lines, other = data.split(b"\n"), draw.choice(LOGS).split(b"\n")
    at = draw.randrange(len(lines))
    lines[at:at] = other[: draw.randint(1, 40)]
    return b"\n".join(lines)


def _large_numbers(draw: random.Random, data: bytes) -> bytes:
    return data.replace(draw.choice([b"0", b"1", b"3"]), b"9" * draw.randint(5, 400), 40)


CHANGES = (
    _shuffled, _lines_lost, _bytes_changed, _cut_short, _two_logs, _other_ends, _starts_cut,
    _digits_changed, _part_of_another, _large_numbers,
)  # fmt: skip


def mutant(seed: int) -> bytes:
    draw = random.Random(seed)
    data = draw.choice(LOGS)
    for _ in range(draw.randint(1, 4)):
        data = draw.choice(CHANGES)(draw, data)
    return data


@pytest.mark.parametrize("first", range(0, SEEDS, A_TEST))
def test_a_mutated_log_is_answered_or_refused_in_a_sentence(first, tmp_path):
    refused = []
    for seed in range(first, first + A_TEST):
        log = tmp_path / f"{seed}.log"
        log.write_bytes(mutant(seed))
        try:
            answer = triage.triage([log])
        except triage.UnreadableLog as error:
            refused.append(str(error))
            continue
        assert json.loads(json.dumps(answer.as_dict())), seed
        assert set(answer.root_ranks) <= set(range(answer.world_size)), seed
        for said in (answer.cause, answer.next_step, answer.verdict):
            assert said.endswith("."), seed
            assert "{" not in said, (seed, said)
        assert answer.cause_id in triage.report(answer, 60).replace("\n", "").replace("  ", "")
        assert triage.page(answer).endswith("</html>") or seed % 4
    assert all(said.endswith(".") for said in refused)
