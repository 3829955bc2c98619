"""Functions that are written to a file for the ranks, and what comes back; without ranks."""

import pickle
from pathlib import Path

import pytest

from allhands import launch
from allhands.train import parallel, written

if True:

    def indented(n):
        return 2 * n


def test_a_function_that_stands_further_right_is_written_from_the_margin(tmp_path):
    path = parallel.write_edits(tmp_path / "edits.py", indented)
    names: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert names["indented"](21) == 42


@pytest.mark.parametrize("thing", [len, 3, eval("lambda n: n")])
def test_what_has_no_source_is_told_in_a_sentence(thing):
    with pytest.raises(ValueError, match="has no source that can be written down"):
        written.source_of(thing)


def test_functions_of_the_package_are_imported_and_others_are_found_by_name():
    assert written.to_write([indented, parallel.shard, indented]) == [indented]
    addresses = [written.address(each) for each in (indented, parallel.shard)]
    assert addresses == [("", "indented"), ("allhands.train.parallel", "shard")]
    assert written.found(addresses, {"indented": len}) == [len, parallel.shard]


def test_a_line_of_the_script_is_quoted_and_one_that_nobody_wrote_is_left_out():
    def quoted(sentence):
        return written.quoted(sentence, Path("functions.py"), "import math\n\n    x = 1 / 0\n")

    assert quoted("rank 0 raised X (line 3 of functions.py); so") == (
        "rank 0 raised X (`x = 1 / 0`); so"
    )
    assert quoted("rank 0 was at line 3 of functions.py") == "rank 0 was at `x = 1 / 0`"
    assert quoted("rank 0 raised X (line 9 of functions.py); so") == "rank 0 raised X; so"
    assert quoted("rank 0 raised X (line 3 of other.py)") == "rank 0 raised X (line 3 of other.py)"


@pytest.mark.parametrize("result", [lambda: 1, (n for n in "ab")])
def test_what_cannot_travel_is_told_in_a_sentence(tmp_path, result):
    with pytest.raises(TypeError, match=r"cannot be sent: (function|generator) .*Return numbers"):
        written.send_back(tmp_path, 0, result)
    assert not list(tmp_path.iterdir())


def done(ranks: int = 2) -> launch.Finished:
    return launch.Finished(ranks, (0,) * ranks, ((),) * ranks, 1.0)


def test_results_come_in_the_order_of_the_ranks(tmp_path):
    for rank in (1, 0):
        written.send_back(tmp_path, rank, {"rank": rank})
    assert written.results(tmp_path, done()) == [{"rank": 0}, {"rank": 1}]


def test_a_rank_that_did_not_return_is_named(tmp_path):
    written.send_back(tmp_path, 1, "here")
    with pytest.raises(launch.RanksFailed, match="rank 0 ended before the function returned") as it:
        written.results(tmp_path, done())
    assert it.value.culprits == (0,)


def test_a_result_that_cannot_be_read_here_is_told_in_a_sentence(tmp_path):
    sent = pickle.dumps(parallel.shard).replace(b"shard", b"nobdy")
    (tmp_path / "rank0.pickle").write_bytes(sent)
    with pytest.raises(launch.RanksFailed, match="cannot be read here"):
        written.results(tmp_path, done(1))
