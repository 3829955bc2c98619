"""Gradients of a backward pass: what is taken, what is refused, and the trace file."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp import measured
from allhands.mgwfbp.gradients import Gradients, TraceError, read_trace, write_trace


def test_ready_times_add_up_the_backward_pass_after_the_forward_pass():
    gradients = Gradients.from_backward([1, 0, 4], [8, 0, 2], forward_s=10)
    assert gradients.ready_s == (11, 11, 15)
    assert gradients.backward_s == (1, 0, 4)
    assert gradients.bytes_before == [0, 8, 8, 10]
    assert (len(gradients), gradients.total_bytes, gradients.compute_s) == (3, 10, 15)


def test_a_forward_pass_that_is_not_given_takes_half_the_backward_pass():
    assert Gradients.from_backward([2.0, 4.0], [1, 1]).forward_s == 3.0


def test_arrays_and_lists_and_tuples_are_the_same():
    expected = Gradients((0.5, 1.5), (3, 4), names=("a", "b"))
    assert Gradients(np.array([0.5, 1.5]), np.array([3, 4]), names=["a", "b"]) == expected
    assert Gradients([0.5, 1.5], [3, 4], names=("a", "b")) == expected


def test_groups_are_named_by_their_first_and_last_gradient():
    named = Gradients((1, 1, 1), (1, 1, 1), names=("fc", "conv2", "conv1"))
    assert (named.name_of(0, 0), named.name_of(0, 2)) == ("fc", "fc..conv1")
    assert Gradients((1, 1, 1), (1, 1, 1)).name_of(1, 2) == "1..2"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([], []), "at least one gradient"),
        (([1, 2], [1]), "2 times, 1 sizes"),
        (([1, 2], [1, 1], 0.0, ("a",)), "1 names"),
        (([1, math.nan], [1, 1]), r"ready_s\[1\] = nan"),
        (([1, math.inf], [1, 1]), r"ready_s\[1\] = inf"),
        (([-1, 2], [1, 1]), r"ready_s\[0\] = -1"),
        (([1, 2], [1, -1]), r"n_bytes\[1\] = -1"),
        (([1, 2], [1, math.nan]), r"n_bytes\[1\] = nan"),
        (([2, 1], [1, 1]), "gradient 1 is ready at 1 s, but gradient 0 is ready at 2 s"),
        (([1, 2], [1, 1], 1.5), "but the forward pass ends at 1.5 s"),
        (([1, 2], [1, 1], -1.0), "forward_s = -1"),
    ],
)
def test_contradictory_input_is_refused_in_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Gradients(*arguments)


@pytest.mark.parametrize("backward_s", [[1.0, -0.5], [1.0, math.nan]])
def test_a_negative_or_unknown_backward_time_is_refused(backward_s):
    with pytest.raises(ValueError, match=r"backward_s\[1\]"):
        Gradients.from_backward(backward_s, [1, 1])


PIECES = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**9)), min_size=1, max_size=20)


@given(pieces=PIECES, forward_s=st.floats(0, 10))
def test_a_written_trace_is_read_back(tmp_path_factory, pieces, forward_s):
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    backward_s, n_bytes = zip(*pieces, strict=True)
    names = [f"layer {i}, weight" for i in range(len(pieces))]
    gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s, names=names)
    write_trace(path, gradients)
    again = read_trace(path, forward_s=forward_s)
    assert (again.n_bytes, again.names) == (gradients.n_bytes, gradients.names)
    assert again.ready_s == pytest.approx(gradients.ready_s)


def test_the_trace_of_the_authors_is_read_with_its_columns():
    gradients = measured.googlenet_k80()
    assert len(gradients) == 64
    assert gradients.n_bytes[:2] == (4100096, 426496)
    assert gradients.names[0] == "126"
    # FP32, weights and biases, each padded to 64 elements, as the authors' log lists them
    assert gradients.total_bytes == 4 * (13_365_696 + 13_440)
    assert gradients.forward_s == pytest.approx(0.5 * sum(gradients.backward_s))


@pytest.mark.parametrize(("pieces", "n"), [("tensor", 161), ("module", 107), ("weights", 54)])
def test_resnet_50_comes_in_three_sets_of_pieces(pieces, n):
    assert len(measured.resnet50_k80(pieces)) == n


HEADER = "arrival_index,name,n_bytes,backward_s\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "trace.csv:1: a trace has the columns"),
        ("arrival_index,backward_s\n0,1\n", "trace.csv:1: .* saw arrival_index, backward_s"),
        ("name,n_bytes,backward_s\nfc,1,1\n", "trace.csv:1: a trace has the columns"),
        (HEADER, "trace.csv:1: .* no gradient"),
        (HEADER + "0,fc,8\n", "trace.csv:2: expected 4 values, saw 3"),
        (HEADER + "0,fc,8,1,1\n", "trace.csv:2: expected 4 values, saw 5"),
        (HEADER + "0,fc,8,1\n2,conv,8,1\n", "trace.csv:3: expected arrival_index 1, saw 2"),
        (HEADER + "1,fc,8,1\n0,conv,8,1\n", "trace.csv:2: expected arrival_index 0"),
        (HEADER + "0,fc,many,1\n", "trace.csv:2: n_bytes must be a finite number .* 'many'"),
        (HEADER + "0,fc,8.5,1\n", "trace.csv:2: n_bytes must be a whole number"),
        (HEADER + "0,fc,8,-1\n", "trace.csv:2: backward_s must be a finite number"),
        (HEADER + "0,fc,8,nan\n", "trace.csv:2: backward_s must be"),
        (HEADER + "0,fc,8,inf\n", "trace.csv:2: backward_s must be"),
        (HEADER + "0,fc,8,\n", "trace.csv:2: backward_s must be"),
        (HEADER + "\n0,fc,8,1\n\n1,conv,x,1\n", "trace.csv:5: n_bytes"),
    ],
)
def test_a_bad_trace_is_refused_with_file_and_line(tmp_path, text, sentence):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(TraceError, match=sentence):
        read_trace(tmp_path / "trace.csv")


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path):
    (tmp_path / "picture.csv").write_bytes(b"\xff\xd8\xff\x00")
    for name in ("missing.csv", "picture.csv"):
        with pytest.raises(TraceError, match=f"{name} cannot be read as a trace"):
            read_trace(tmp_path / name)


def test_a_trace_saved_by_a_spreadsheet_is_read(tmp_path):
    text = "\ufeff" + HEADER.replace("\n", "\r\n") + "0,fc,8,1\r\n"
    (tmp_path / "trace.csv").write_bytes(text.encode())
    assert read_trace(tmp_path / "trace.csv", forward_s=2).ready_s == (3.0,)
