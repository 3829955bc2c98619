"""Profiles of four tools: each format is read by its content; what is wrong gets one sentence."""

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from allhands import profile
from allhands.profile import written, written_steps
from allhands.profile.shelf import FOLDER

SECONDS = [step.name for step in written_steps.STEPS_WRITTEN]
NSYS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
NVPROF = '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
EMPTY = '{"schemaVersion": 1, "traceEvents": []}'


def second(step: str):
    (name,) = (name for name in profile.names() if name.startswith(f"{step}_n"))
    return profile.read(profile.trace(name))


def times(trace) -> dict[str, tuple[int, float]]:
    """(calls, time) by kernel; copies apart, which each tool names in its own way."""
    found: dict[str, tuple[int, float]] = {}
    for one in trace.launches:
        if "memcpy" not in one.name.lower():
            calls, total_s = found.get(one.name, (0, 0.0))
            found[one.name] = (calls + one.calls, total_s + one.total_s)
    return found


def test_the_course_has_each_step_in_two_formats_and_says_where_from():
    assert len(profile.names()) == 2 * len(SECONDS) == 16
    formats = set()
    for name in profile.names():
        trace = profile.read(profile.trace(name))
        assert trace.origin.startswith("written from public documentation, not recorded")
        formats.add(trace.format)
    assert formats == {"torch.profiler", "nsys sqlite", "nsys csv", "nvprof csv"}


@pytest.mark.parametrize("step", SECONDS)
def test_both_formats_of_a_step_say_the_same(step):
    first, other = times(profile.read(profile.trace(step))), times(second(step))
    assert set(first) == set(other)
    for name, (calls, total_s) in first.items():
        assert other[name][0] == calls
        assert other[name][1] == pytest.approx(total_s)


@pytest.mark.parametrize("step", written_steps.STEPS_WRITTEN, ids=lambda step: step.name)
def test_the_times_are_those_that_were_written(step):
    read = times(profile.read(profile.trace(step.name)))
    for kernel in {row.kernel for row in step.rows if not row.kernel.startswith("[CUDA")}:
        us = sum(row.calls * row.each_us for row in step.rows if row.kernel == kernel)
        assert read[kernel][1] == pytest.approx(1e-6 * us)


@pytest.mark.parametrize("step", ["a100_mixed", "h100_fp32"])
def test_sqlite_knows_operators_shapes_and_layers_as_torch_does(step):
    def told(trace):
        return {
            (one.name, one.operator, one.shapes, one.layer)
            for one in trace.launches
            if "memcpy" not in one.name.lower()
        }

    assert told(second(step)) == told(profile.read(profile.trace(step)))


def test_the_committed_traces_are_those_that_are_written(tmp_path):
    written.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} | {"README.md"} == {
        path.name for path in FOLDER.iterdir()
    }
    for path in tmp_path.iterdir():
        if path.suffix == ".sqlite":  # its bytes depend on the library's version
            assert dump(path) == dump(FOLDER / path.name)
        else:
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path) as new, opener(FOLDER / path.name) as committed:
                assert new.read() == committed.read()


def dump(path) -> list[str]:
    with closing(sqlite3.connect(path)) as base:
        return list(base.iterdump())


@pytest.mark.parametrize("name", ["v100_vocab101", "v100_mixed_nvprof", "a100_tf32_nsys"])
def test_the_files_name_does_not_matter(name, tmp_path):
    path = profile.trace(name)
    shutil.copy(path, tmp_path / "anything.bin")
    assert profile.read(tmp_path / "anything.bin").launches == profile.read(path).launches


# cases worked by hand


def base(path, script: str) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.executescript(script)


def test_nsys_sum(write):
    rows = '75.0,3000,3,1000.0,1,1,1,0.0,"f(int, T*)"\n25.0,1000,1,1000.0,1,1,1,0,g\n'
    write(x_csv=f"Processing [x.sqlite]...\n\n{NSYS}{rows}".encode())
    found = profile.read("x.csv").launches
    assert [(one.name, one.calls) for one in found] == [("f(int, T*)", 3), ("g", 1)]
    assert [one.total_s for one in found] == pytest.approx([3e-6, 1e-6])


@pytest.mark.parametrize(
    ("header", "row", "total_s"),
    [
        ("Time(%),Total Time,Instances,Average,Minimum,Maximum,Name", "1,2000,4,1,1,1,f", 2e-6),
        ("Time(%),Total Time (us),Instances,Avg (us),Name", "1,2000,4,1,f", 2e-3),
        ("Time (%),Total Time (ms),Instances,Avg (ms),Name", '1,"2,000",4,1,f', 2.0),
        ("Start (ns),Duration (ns),CorrId,Device,Strm,Name", "5,2000,1,Tesla T4 (0),7,f", 2e-6),
        ("Start(nsec),Duration(nsec),CorrId,Device,Strm,Name", "5,2000,1,Tesla T4 (0),7,f", 2e-6),
        ("Start (s),Duration (s),CorrId,Device,Strm,Name", "5,2,1,Tesla T4 (0),7,f", 2.0),
    ],
)
def test_nsys_headers_of_many_years(header, row, total_s, write):
    write(x_csv=f"{header}\n{row}\n".encode())
    (one,) = profile.read("x.csv").launches
    assert (one.name, one.total_s) == ("f", pytest.approx(total_s))


def test_a_name_with_commas_that_is_not_quoted(write):
    write(x_csv=f"{NSYS}75.0,3000,3,1000.0,1,1,1,0.0,f(int, T*)\n".encode())
    assert [one.name for one in profile.read("x.csv").launches] == ["f(int, T*)"]


def test_nvprof_units_and_calls_of_the_cpu(write):
    rows = (
        '"GPU activities",80,1.5,3,500,1,1,"volta_sgemm_32x32_nn"\n"API calls",9,9.0,9,1,1,1,"a"\n'
    )
    head = "==7== NVPROF is profiling process 7\n==7== Profiling result:\n"
    write(x_csv=f"{head}{NVPROF}{rows}".encode())
    (one,) = profile.read("x.csv").launches
    assert (one.name, one.calls, one.total_s) == ("volta_sgemm_32x32_nn", 3, pytest.approx(1.5e-3))


def test_nvprof_numbers_its_launches(write):
    head = '"Start","Duration","Grid X","Device","Name"\nms,us,,,\n'
    chip = "Tesla V100-SXM2-16GB (0)"
    rows = f'0.1,2.0,8,"{chip}","f [101]"\n0.2,4.0,8,"{chip}","f [102]"\n'
    write(x_csv=f"==7== Profiling result:\n{head}{rows}".encode())
    trace = profile.read("x.csv")
    assert [(one.name, one.calls, one.total_s) for one in trace.launches] == [
        ("f", 2, pytest.approx(6e-6))
    ]
    assert trace.chip == "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_tables_that_a_windows_shell_wrote(encoding, write):
    write(x_csv=f"{NSYS}75.0,3000,3,1000.0,1,1,1,0.0,f\r\n".encode(encoding))
    assert [one.name for one in profile.read("x.csv").launches] == ["f"]


def test_two_processes_may_number_their_launches_alike(tmp_path):
    script = """
    INSERT INTO StringIds VALUES (1, 'volta_sgemm_32x32_nn');
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 11, (7 << 24) + 1, 5, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 11, (8 << 24) + 1, 5, 1);
    INSERT INTO NVTX_EVENTS VALUES (9, 20, 59, 'encoder', NULL, (7 << 24) + 1);
    INSERT INTO NVTX_EVENTS VALUES (9, 20, 59, 'decoder', NULL, (8 << 24) + 1);
    INSERT INTO NVTX_EVENTS VALUES (9, NULL, 34, 'a mark', NULL, (8 << 24) + 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (12, 1012, 0, 7, 5, 7 << 24, 1, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (12, 3012, 0, 7, 5, 8 << 24, 1, 1);
    """
    base(tmp_path / "x.sqlite", written.TABLES + script)
    found = profile.read(tmp_path / "x.sqlite").launches
    assert {one.layer: one.total_s for one in found} == {
        "encoder": pytest.approx(1e-6),
        "decoder": pytest.approx(3e-6),
    }


KERNEL = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
NAMED = "INSERT INTO StringIds VALUES (1, 'volta_sgemm_32x32_nn');"
LAUNCH = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES"
RANGE = "INSERT INTO NVTX_EVENTS VALUES"
GOOD_KERNEL = f"{KERNEL} (12, 1012, 0, 7, 5, 0, 1, 1);"


@pytest.mark.parametrize(
    "times",
    ["12, 12", "12, 11", "'abc', 'abd'", "'5', 'later'", "x'00', x'01'", "-9e999, 9e999"],
)
def test_kernels_of_an_sqlite_file_that_took_no_time(times, tmp_path):
    base(tmp_path / "x.sqlite", f"{written.TABLES}{NAMED}{KERNEL} ({times}, 0, 7, 5, 0, 1, 1);")
    made = profile.report(profile.read(tmp_path / "x.sqlite"))
    assert (made.total_s, made.tensor_core_share) == (0, None)
    assert "All kernels have time 0" in str(made)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("INSERT INTO StringIds VALUES (1, NULL);", "(a kernel without a name)"),
        ("INSERT INTO StringIds VALUES (1, x'00ff');", "(a kernel without a name)"),
        ("INSERT INTO StringIds VALUES (1, 5);", "5"),
        ("INSERT INTO StringIds VALUES (2, 'another');", "(a kernel without a name)"),
        ("INSERT INTO StringIds VALUES (1, cast(x'66ff' as text));", "f\ufffd"),
    ],
)
def test_an_odd_name_of_a_kernel_in_an_sqlite_file(script, name, tmp_path):
    tables = written.TABLES.replace("value TEXT NOT NULL", "value TEXT")
    base(tmp_path / "x.sqlite", f"{tables}{script}{GOOD_KERNEL}")
    trace = profile.read(tmp_path / "x.sqlite")
    assert [(one.name, one.total_s) for one in trace.launches] == [(name, pytest.approx(1e-6))]
    assert str(profile.report(trace))


@pytest.mark.parametrize("odd", ["NULL", "'text'", "x'00'", "1.5"])
@pytest.mark.parametrize(
    "row",
    [
        f"{LAUNCH} ({{odd}}, 11, 1, 5, 1);",
        f"{LAUNCH} (10, 11, {{odd}}, 5, 1);",
        f"{LAUNCH} (10, 11, 1, {{odd}}, 1);",
        f"{RANGE} ({{odd}}, 20, 59, 'decoder', NULL, 1);",
        f"{RANGE} (9, {{odd}}, 59, 'decoder', NULL, 1);",
        f"{RANGE} (9, 20, {{odd}}, 'decoder', NULL, 1);",
        f"{RANGE} (9, 20, 59, 'decoder', NULL, {{odd}});",
        f"{KERNEL} (12, 12, 0, 7, {{odd}}, 0, 1, 1);",
        f"{KERNEL} (12, 12, 0, 7, 5, {{odd}}, 1, 1);",
    ],
)
def test_one_odd_row_of_an_sqlite_file_spoils_no_other(row, odd, tmp_path):
    script = (
        f"{NAMED}{GOOD_KERNEL}{LAUNCH} (10, 11, 1, 5, 1);{RANGE} (8, 20, 59, 'encoder',NULL,1);"
    )
    base(tmp_path / "x.sqlite", f"{written.TABLES}{script}{row.format(odd=odd)}")
    first = profile.read(tmp_path / "x.sqlite").launches[0]
    assert (first.layer, first.total_s) == ("encoder", pytest.approx(1e-6))


@pytest.mark.parametrize("name", ["v100_vocab101_nvprof", "v100_mixed_nvprof", "h100_bf16_nsys"])
def test_a_table_that_was_cut_off_anywhere_in_its_last_line_is_noticed(name, tmp_path):
    whole = profile.trace(name).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last + 1, len(whole)):
        for tail in (b"", b"\n"):  # a copy may end the line
            cut = whole[:end] + tail
            if tail and whole[last:end].count(b",") >= whole[last:].count(b","):
                continue  # only letters of the name are missing: nobody can know
            (tmp_path / "x.csv").write_bytes(cut)
            with pytest.raises(ValueError, match=r"cut off|expected|no table") as caught:
                profile.read(tmp_path / "x.csv")
            assert "\n" not in str(caught.value)


def test_what_a_profiler_says_around_its_table_is_not_of_it(write):
    said = '==7== NVPROF is profiling process 7, command: sh -c a,"b" c\n'
    row = '"GPU activities",80,1.5,3,500,1,1,"f"\n'
    write(x=f'{said}{NVPROF}{row}==7== Warning: "odd\n'.encode())
    assert [one.name for one in profile.read("x").launches] == ["f"]


# what cannot be read


GOOD_JSON = json.dumps(
    {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "f", "ts": 1, "dur": 1}] * 9}
)
BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "cut_json": (GOOD_JSON[:-40].encode(), "ends in the middle, after 8 events"),
    "cut_gzip": (gzip.compress(GOOD_JSON.encode())[:-9], "damaged or cut off"),
    "bad_gzip": (b"\x1f\x8b" + b"garbage" * 9, "damaged or cut off"),
    "empty_gzip": (gzip.compress(b""), "is empty"),
    "no_json": (b"{'traceEvents': []}", "is no JSON"),
    "json_and_more": (GOOD_JSON.encode() + b"{}", "is no JSON: expected the end"),
    "other_json": (b'{"cells": [], "metadata": {}}', "has no list traceEvents"),
    "odd_json": (b'{"traceEvents": 3}', "has no list traceEvents"),
    "cpu_only": (EMPTY.encode(), "no GPU kernel in this trace"),
    "odd_events": (b'{"traceEvents": [1, null, "x", [], {}]}', "no GPU kernel in this trace"),
    "deep_json": (b'{"traceEvents": [' + b"[" * 200_000, "no JSON"),
    "binary": (b"\x01\x00\x02" * 999, "is a binary file"),
    "zip": (b"PK\x03\x04" + b"\0" * 99, "is a zip archive. Unpack"),
    "nsys_report": (b"NVIDIA\x00\x01", "is a report of Nsight. Export it"),
    "prose": (b"Dear Sir or Madam,\nplease find my profile.\n", "is no profile that is known"),
    "other_table": (b"a,b,name\n1,2,3\n", "is no profile that is known"),
    "nsys_without_rows": (NSYS.encode(), "no GPU kernel in this table"),
    "nsys_short_row": (f"{NSYS}75.0,3000,3\n".encode(), "a row has 3 cells, its header 9"),
    "nsys_no_number": (f"{NSYS}75.0,much,3,1,1,1,1,0,f\n".encode(), "expected a time in ns"),
    "nsys_negative": (f"{NSYS}75.0,-5,3,1,1,1,1,0,f\n".encode(), "a time is 0 or more"),
    "nsys_no_calls": (f"{NSYS}75.0,5,many,1,1,1,1,0,f\n".encode(), "expected a number of calls"),
    "nsys_odd_unit": (
        NSYS.replace("(ns)", "(fortnights)").encode() + b"1,2,3,4,5,6,7,8,f\n",
        "unit",
    ),
    "nvprof_without_rows": (f"==7== NVPROF\n{NVPROF}".encode(), "no GPU kernel in this table"),
    "nvprof_short_row": (f'{NVPROF}"GPU activities",3\n'.encode(), "a row has 2 cells"),
    "nvprof_failed": (b"==7== NVPROF is profiling process 7\n==7== Error: x\n", "no GPU kernel"),
    "nsys_no_end": (f"{NSYS}75.0,3000,3,1,1,1,1,0,f".encode(), "its last line has no end"),
    "nsys_no_name": (f"{NSYS}75.0,3000,3,1,1,1,1,0,\n".encode(), "a row has no kernel's name"),
    "nvprof_no_end": (f'{NVPROF}"GPU activities",1,1,1,1,1,1,f'.encode(), "has no end"),
    "nsys_one_cell": (f"{NSYS}75.0,3000,3,1,1,1,1,0,f\n75\n".encode(), "its last row is '75'"),
    "open_quote": (f'{NSYS}75.0,3000,3,1,1,1,1,0,"f\n'.encode(), "or is cut off"),
    "sqlite_gzip": (gzip.compress(b"SQLite format 3\0" + b"\0" * 99), "Unpack it first: gunzip"),
    "twice_gzip": (gzip.compress(gzip.compress(b"{}")), "a gzip file once more, packed by"),
    "long_line": (f"{NSYS}75.0,{'9' * 200_000}".encode(), "is no table that can be read"),
    "sqlite_head": (b"SQLite format 3\0" + b"\0" * 99, "damaged or cut off"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_one_sentence(name, write):
    content, said = BAD[name]
    write(x=content)
    with pytest.raises(ValueError, match="x") as caught:
        profile.read("x")
    message = str(caught.value)
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("CREATE TABLE runs (id INTEGER);", "without the tables of Nsight"),
        ("CREATE TABLE StringIds (id INTEGER, value TEXT);", "no GPU kernel in this trace"),
        (
            "CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE "
            "CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, correlationId INTEGER, "
            "shortName INTEGER);",
            "no GPU kernel in this trace",
        ),
        (
            "CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE "
            "CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER);",
            "cannot be read",
        ),
    ],
)
def test_an_sqlite_file_of_something_else(script, said, tmp_path):
    base(tmp_path / "x.sqlite", script)
    with pytest.raises(ValueError, match=said):
        profile.read(tmp_path / "x.sqlite")


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        profile.read(tmp_path / "nothing.json")
    with pytest.raises(ValueError, match="is a folder"):
        profile.read(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x")
    for path in (tmp_path / "x", Path("/dev/null")):
        with pytest.raises(ValueError, match=r"is not a regular file: .* Write it into a file"):
            profile.read(path)


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="the system has no /dev/stdin")
def test_the_standard_input_is_taken_from_a_file_and_refused_from_a_pipe(tmp_path):
    code = "from allhands import profile; print(profile.read('/dev/stdin').format)"
    words = [sys.executable, "-c", code]
    path = profile.trace("t4_fp32_nvprof")
    with path.open("rb") as file:
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "nvprof csv"
    done = subprocess.run(words, input=path.read_text(), capture_output=True, text=True, timeout=60)
    assert "is not a regular file" in done.stderr


def test_a_trace_that_the_course_does_not_have():
    with pytest.raises(ValueError, match="The traces are: a100_mixed"):
        profile.trace("k80")
