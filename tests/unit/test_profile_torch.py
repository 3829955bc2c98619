"""torch.profiler traces: layers and shapes of a real profile, streaming, old names of keys."""

import io
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, record_function

from allhands import profile
from allhands.profile import json_stream

SGEMM = "volta_sgemm_128x64_nn"


class Net(torch.nn.Module):
    """Two layers, one known as a module and one as a named range."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(16, 32)
        self.weight = torch.nn.Parameter(torch.zeros(32, 101))

    def forward(self, x):
        h = torch.relu(self.encoder(x))
        with record_function("the output"):
            return h @ self.weight


@pytest.fixture(scope="module")
def cpu_trace(tmp_path_factory):
    """A real profile of a forward and a backward pass on the CPU."""
    path = tmp_path_factory.mktemp("profile") / "cpu.json"
    net, x = Net(), torch.ones(8, 16)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True
    ) as made:
        net(x).sum().backward()
    made.export_chrome_trace(str(path))
    return path


def planted(cpu_trace, tmp_path, reverse=False):
    """The same with one kernel of 2 us for each product, as a GPU would have run it."""
    found = json.loads(cpu_trace.read_text(encoding="utf-8"))
    events = found["traceEvents"]
    products = [one for one in events if one.get("name") in ("aten::mm", "aten::addmm")]
    for one in products:
        kernel = {"ph": "X", "cat": "kernel", "name": SGEMM, "ts": one["ts"], "dur": 2.0}
        events.append(kernel | {"args": {"External id": one["args"]["External id"]}})
    if reverse:
        events.reverse()
    (tmp_path / "gpu.json").write_text(json.dumps(found), encoding="utf-8")
    return tmp_path / "gpu.json"


def test_a_profile_of_a_cpu_has_no_kernel(cpu_trace):
    with pytest.raises(ValueError, match=r"no GPU kernel in this trace .* Profile on a GPU"):
        profile.read(cpu_trace)


@pytest.mark.parametrize("reverse", [False, True])
def test_layers_and_shapes_come_from_the_operators(cpu_trace, tmp_path, reverse):
    found = {
        (one.layer, one.operator, tuple(shape for shape in one.shapes if len(shape) == 2))
        for one in profile.read(planted(cpu_trace, tmp_path, reverse)).launches
    }
    assert found == {
        ("Linear_0", "aten::addmm", ((8, 16), (16, 32))),
        ("the output", "aten::mm", ((8, 32), (32, 101))),
        # the backward pass: the gradients of the output's weight and input, and the encoder's
        ("the output", "aten::mm", ((32, 8), (8, 101))),
        ("the output", "aten::mm", ((8, 101), (101, 32))),
        ("Linear_0", "aten::mm", ((32, 8), (8, 16))),
    }


def test_the_report_names_the_dimension(cpu_trace, tmp_path):
    path = planted(cpu_trace, tmp_path)
    half = path.read_text(encoding="utf-8").replace('"float"', '"c10::Half"')
    path.write_text(half.replace(SGEMM, "volta_fp16_sgemm_fp16_128x64_nn"), encoding="utf-8")
    rows = profile.report(profile.read(path)).not_on_tensor_cores
    assert {(one["layer"], one["reason"], one["dimension"], one["size"]) for one in rows} == {
        ("Linear_0", "library", None, None),
        ("the output", "dimension", "N", 101),
        ("the output", "dimension", "K", 101),
    }


def test_names_of_keys_of_older_versions(tmp_path):
    args = {"external id": 7, "correlation": 3}
    events = [
        {
            **{"ph": "X", "cat": "Operator", "name": "aten::mm", "ts": 1, "dur": 5, "tid": 1},
            "args": {"External id": 7, "Input dims": [[8, 16], [16, 32]], "Input type": ["float"]},
        },
        {"ph": "X", "cat": "Kernel", "name": SGEMM, "ts": 3, "dur": 2, "args": args},
    ]
    (tmp_path / "old.json").write_text(json.dumps(events), encoding="utf-8")  # only the list
    (one,) = profile.read(tmp_path / "old.json").launches
    assert (one.operator, one.shapes) == ("aten::mm", ((8, 16), (16, 32)))


def test_a_kernel_may_name_only_its_launch(tmp_path):
    both = {"External id": 7, "correlation": 3}
    events = [
        {"ph": "X", "cat": "kernel", "name": SGEMM, "ts": 3, "dur": 2, "args": {"correlation": 3}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": 2, "args": both},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "args": both},
    ]
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert [one.operator for one in profile.read(tmp_path / "x.json").launches] == ["aten::mm"]


ODD = [[7], {"a": 7}, None, 7.5, True, "7", 10**30]


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("key", ["External id", "correlation", "Sequence number", "Fwd thread id"])
def test_a_trace_with_odd_ids_is_read(odd, key, tmp_path):
    ids = {"External id": 7, "correlation": 3, "Sequence number": 1, key: odd}
    times = {"ts": 1, "dur": 2, "tid": odd, "args": ids}
    events = [
        {"ph": "X", "cat": cat, "name": name, **times}
        for cat, name in (
            ("kernel", SGEMM),
            ("cuda_runtime", "cudaLaunchKernel"),
            ("cpu_op", "aten::mm"),
            ("user_annotation", "encoder"),
        )
    ]
    (tmp_path / "x.json").write_text(json.dumps(events), encoding="utf-8")
    (one,) = profile.read(tmp_path / "x.json").launches
    assert (one.name, one.total_s) == (SGEMM, pytest.approx(2e-6))
    assert str(profile.report(profile.read(tmp_path / "x.json")))


@pytest.mark.parametrize("dur", [0, "abc", None, [], {}, -1, "NaN", 10**400, float("nan")], ids=str)
def test_a_time_that_is_none_counts_as_nothing(dur, tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": SGEMM, "ts": dur, "dur": dur}
    (tmp_path / "x.json").write_text(json.dumps([event]), encoding="utf-8")
    made = profile.report(profile.read(tmp_path / "x.json"))
    assert (made.total_s, made.tensor_core_share) == (0, None)
    assert "All kernels have time 0" in str(made)


def test_a_number_of_thousands_of_digits_is_no_traceback(tmp_path):
    (tmp_path / "x.json").write_text('[{"ts": ' + "9" * 5000 + "}]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is no JSON: it holds a number that is too long"):
        profile.read(tmp_path / "x.json")


# streaming


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=6), st.dictionaries(st.text(), JSON, max_size=3), st.integers(1, 9))
def test_streaming_gives_what_json_gives(events, header, chunk):
    header.pop(json_stream.EVENTS, None)
    text = json.dumps({**header, json_stream.EVENTS: events, "after": 1}, ensure_ascii=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK_CHARS", chunk)
        seen: dict = {}
        assert list(json_stream.events(io.StringIO(text), seen)) == events
    assert seen == {**header, json_stream.EVENTS: True, "after": 1}


@given(st.lists(JSON, min_size=1, max_size=4), st.data())
def test_a_trace_that_is_cut_off_is_noticed(events, data):
    text = json.dumps({json_stream.EVENTS: events})
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(json_stream.NotJson) as caught:
        list(json_stream.events(io.StringIO(cut), {}))
    assert caught.value.at_end


def test_one_endless_value_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK_CHARS", 1 << 10)
    monkeypatch.setattr(json_stream, "LONGEST_VALUE_CHARS", 1 << 14)

    class Endless:
        read_chars = 0

        def read(self, n_chars):
            start = '{"traceEvents": ["' if self.read_chars == 0 else ""
            self.read_chars += n_chars
            return start + "x" * (n_chars - len(start))

    endless = Endless()
    with pytest.raises(json_stream.NotJson):
        list(json_stream.events(endless, {}))
    assert endless.read_chars < 1 << 17
