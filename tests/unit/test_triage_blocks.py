"""Events: what belongs to one failure of one rank, and which exception was raised first."""

import pytest

from allhands.triage.blocks import Blocks, Event
from allhands.triage.glue import unglued
from allhands.triage.labels import Line
from allhands.triage.normal import normalised, own_frame
from allhands.triage.secondary import root_of

HEADER = "Traceback (most recent call last):"
FRAME = ['  File "a.py", line 3, in f', "    g()"]
DURING = "During handling of the above exception, another exception occurred:"


def events(text: list[str], shared: bool = False) -> list[Event]:
    blocks = Blocks(shared)
    found = []
    for number, said in enumerate(text, 1):
        found += blocks.feed(Line(number, said, None if shared else 0))
    return found


def classes(event: Event) -> list[str]:
    return [raised.error_class for raised in event.chain]


def test_a_traceback_is_one_event_with_its_lines():
    (event,) = events(["hello", HEADER, *FRAME, "KeyError: 'a'", "bye"])
    assert (event.first, event.complete) == (2, True)
    assert classes(event) == ["KeyError"]
    assert event.chain[0].message == "'a'"
    assert event.frames == [("a.py", 3, "f")]


def test_a_chain_is_one_event_whose_root_is_the_first_raised():
    (event,) = events(
        [HEADER, *FRAME, "KeyError: 'a'", "", DURING, "", HEADER, *FRAME, "kelp.ConfigError: bad"]
    )
    assert classes(event) == ["KeyError", "ConfigError"]
    assert root_of(event).error_class == "KeyError"


def test_a_second_traceback_without_a_link_is_a_second_event():
    found = events([HEADER, *FRAME, "KeyError: 'a'", "", HEADER, *FRAME, "ValueError: b"])
    assert [classes(event) for event in found] == [["KeyError"], ["ValueError"]]


def test_a_cut_traceback_is_not_complete():
    (event,) = events([HEADER, *FRAME])
    assert not event.complete
    assert event.chain == []


def test_an_exception_group_is_one_event_and_what_it_holds_is_the_root():
    (event,) = events(
        [
            "  + Exception Group Traceback (most recent call last):",
            '  |   File "a.py", line 8, in <module>',
            "  | ExceptionGroup: two tasks (2 sub-exceptions)",
            "  +-+---------------- 1 ----------------",
            "    | Traceback (most recent call last):",
            '    |   File "a.py", line 3, in get',
            "    | OSError: gone",
            "    +---------------- 2 ----------------",
            "    | Traceback (most recent call last):",
            '    |   File "a.py", line 4, in put',
            "    | ValueError: bad",
            "    +------------------------------------",
        ]
    )
    assert classes(event) == ["ExceptionGroup", "OSError", "ValueError"]
    assert root_of(event).error_class == "OSError"


def test_every_rank_prints_all_ranks_is_one_event_about_several():
    said = [HEADER, *FRAME, "CheckpointException: CheckpointException ranks:dict_keys([1, 3])"]
    for rank in (1, 3):
        said += [f"{HEADER} (RANK {rank})", *FRAME, "RuntimeError: no key", ""]
    (event,) = events(said)
    assert event.about == [1, 3]
    assert root_of(event).error_class == "RuntimeError"


def test_a_child_printed_by_its_parent_has_the_childs_rank():
    found = events(
        ["-- Process 2 terminated with the following error:", HEADER, *FRAME, "KeyError: 1"]
    )
    assert found[0].rank == 2
    assert found[0].parent


def test_in_a_shared_stream_every_header_is_an_event():
    said = [HEADER, HEADER, *FRAME, *FRAME, "KeyError: 1", "KeyError: 1"]
    found = events(said, shared=True)
    assert [event.complete for event in found] == [True, True]


def test_a_crash_of_c_plus_plus_has_its_class_and_what():
    (event,) = events(
        ["terminate called after throwing an instance of 'c10::Error'", "  what():  bad tensor"]
    )
    assert (event.chain[0].error_class, event.chain[0].message) == ("Error", "bad tensor")


def test_errors_of_mpi_itself_name_the_rank_that_reports():
    (event,) = events(
        [
            "[c01:20110] *** An error occurred in MPI_Allreduce",
            "[c01:20110] *** reported by process [1234567,2]",
            "[c01:20110] *** MPI_ERR_TRUNCATE: message truncated",
        ],
        shared=True,
    )
    assert event.rank == 2
    assert event.chain[0].error_class == "MPI_ERR_TRUNCATE"


@pytest.mark.parametrize(
    ("glued", "parts"),
    [
        (f"    main(){HEADER}", ["    main()", HEADER]),
        (f"{HEADER}{HEADER}", [HEADER, HEADER]),
        ("KeyErrorKeyError: : 'a''a'", ["KeyError: 'a'", "KeyError: 'a'"]),
        (
            "a.b.NcclErrora.b.NcclErrora.b.NcclError: : : no 1no 2no 3",
            ["a.b.NcclError: no 1", "a.b.NcclError: no 2", "a.b.NcclError: no 3"],
        ),
        ("ValueError: oneValueError: two", ["ValueError: one", "ValueError: two"]),
        ("an error_rate of 0.4", ["an error_rate of 0.4"]),
        ("RuntimeError: Caught RuntimeError in worker", None),
    ],
)
def test_glued_lines_come_apart(glued, parts):
    assert unglued(glued) == (parts or [glued])


def test_a_message_behind_a_progress_bar_stands_alone():
    bar = " 41%|████      | 165/400 [00:82<04:01,  1.31it/s, loss=-0.4]"
    said = "W1103 10:14:52.102000 21540 run.py:897] Sending process 1 closing signal SIGTERM"
    assert unglued(bar + said)[-1] == said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("array device = 0 while current = 1", "array device = 0 while current = 3"),
        ("on cuda:1 and cuda:0!", "on cuda:3 and cuda:0!"),
        ("at 0x7f3aa and pid 4102", "at 0x81bbc and pid 77"),
        ("peer [10.1.0.14]:54168 closed", "peer [10.1.0.9]:33121 closed"),
        ("[Errno 28] No space left on device: 'x'", "[Errno 28] Kein Platz mehr: 'x'"),
        ("site-packages/a.py:12", "site-packages/a.py:19"),
        ("/tmp/tmpab12 gone", "/tmp/tmpzz99 gone"),
        ("rank2 waits", "rank3 waits"),
        ("Cannot interpret '26' as a data type", "Cannot interpret '25' as a data type"),
    ],
)
def test_what_differs_between_ranks_is_normalised(one, other):
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'lr'", "KeyError: 'momentum'"),
        ("no file '26.txt'", "no file '26.csv'"),
        ("[Errno 28] x: 'a'", "[Errno 2] x: 'a'"),
        ("no attribute scale", "no attribute shift"),
    ],
)
def test_what_says_something_else_is_not(one, other):
    assert normalised(one) != normalised(other)


def test_the_users_own_frame_is_the_deepest_outside_libraries():
    frames = [
        ("run.py", 9, "main"),
        ("kelp/net.py", 66, "forward"),
        ("/opt/envs/dl/lib/python3.11/site-packages/torch/nn/a.py", 1, "f"),
        ("cupy/core/core.pyx", 967, "g"),
    ]
    assert own_frame(frames) == ("kelp/net.py", 66, "forward")
