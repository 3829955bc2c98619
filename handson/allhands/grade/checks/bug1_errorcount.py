"""The checks of the lab bug1_errorcount: one function for each exercise, named by its id.

Logs are small and written here, so that each likely mistake has a case of its own. `identify` is
run on four real ranks. The choices `decide` and `trap` are judged from labs.toml.
"""

from collections.abc import Callable, Mapping

from allhands.grade.check import Marker, likely, show
from allhands.launch import LaunchError
from allhands.train.faults.bug1_errorcount import N_SENTENCES
from allhands.train.faults.bug1_errorcount import count as right_count
from allhands.train.faults.bug1_errorcount import normalise as right_normalise
from allhands.train.faults.bug1_errorcount_log import Log
from allhands.train.rungs import start

HEADER = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 7, in main\n    main()'
WHOLE = f"{HEADER}\n{FRAME}\nTypeError: Cannot interpret '26' as a data type"
CUT = f"{HEADER}\n{FRAME}"
CHAINED = (
    f"epoch 1\n{HEADER}\n{FRAME}\nKeyError: 3\n\n"
    f"During handling of the above exception, another exception occurred:\n\n{WHOLE}"
)
RANKS, TIME_LIMIT_S = 4, 20.0


def by_hand(mark: Marker, by_hand: Mapping, logs: Mapping[str, Log]) -> None:
    mark.need(
        isinstance(logs, Mapping)
        and {"type", "index", "device"} <= set(logs)
        and all(isinstance(log, Log) for log in logs.values()),
        "the three logs of this section, as `logs`",
        show(list(logs) if isinstance(logs, Mapping) else logs),
        "run the cells above again, from the first one on",
    )
    mark.need(
        isinstance(by_hand, Mapping) and set(logs) <= set(by_hand),
        f"a dict with the keys {', '.join(logs)}",
        show(by_hand),
    )
    no_numbers = [name for name in logs if not isinstance(by_hand[name], int | float)]
    mark.need(
        not no_numbers,
        "a number for each log: how many ranks",
        ", ".join(f"{show(by_hand[name])} for {name}" for name in no_numbers),
        'write it as a number, such as `{"type": 2, ...}`',
    )
    wrong = []
    for name, log in logs.items():
        found = right_count(log.output, right_normalise)["complete"].values()
        right, got = max(map(len, found), default=0), by_hand[name]
        texts = {text.splitlines()[-1] for text in log.output.values() if HEADER in text}
        if got == right:
            continue
        advice = likely(
            (got == log.ranks, "not every rank of this log has a traceback: look at the labels"),
            (got == len(texts), "messages that differ in numbers are one"),
            (got == log.text.count("File "), "count the ranks that print it, not the lines"),
            otherwise="for how many labels [0] to [3] does the log hold the last line of an error?",
        )
        wrong.append((name, got, advice))
    asked = "in each of the three logs, how many ranks printed the error"
    if not wrong:
        mark.require(True, 2, asked)
        return
    name, got, advice = wrong[0]
    mark.require(len(wrong) == 1, 1, "at least two of the three right", f"{len(wrong)} are not")
    mark.require(False, 1, asked, f"{show(got)} for {name}", advice)


# Two messages, may they be one, and what to try if the answer is another.
PAIRS = (
    ("IndexError: index 12 is out", "IndexError: index 7 is out", True, "a number is `\\d+`"),
    ("KeyError: <Word object at 0x7f3a9c>", "KeyError: <Word object at 0x7fe120>", True, "hex"),
    ("ValueError: (26,4) (25,4)", "ValueError: (25,4) (26,4)", True, "numbers in brackets, too"),
    (
        "RuntimeError: on cuda:1",
        "RuntimeError: on cuda:3",
        True,
        "a device behind a colon is a number, too",
    ),
    ("ValueError: loss 0.25", "ValueError: loss 1.5e-05", True, "fraction and exponent, too"),
    ("ValueError: offset -1", "ValueError: offset 1", True, "the sign belongs to the number"),
    ("KeyError: 'ship'", "KeyError: 'shop'", False, "keep the words"),
    ("TypeError: not float32", "TypeError: not float64", False, "digits inside a name stay"),
    ("NameError: conv1", "NameError: conv2", False, "digits inside a name stay"),
    ("NameError: block1_in", "NameError: block2_in", False, "digits inside a name stay"),
    ("TypeError: 3 words", "ValueError: 3 words", False, "keep the class of the error"),
)


def normalise(mark: Marker, normalise: Callable) -> None:
    def same(pair: tuple) -> bool:
        first, second = (mark.run(normalise, text, none_passes=True) for text in pair[:2])
        mark.need(isinstance(first, str), "a text", show(first), "return the message that is left")
        return first == second

    missed = [pair for pair in PAIRS if pair[2] and not same(pair)]
    merged = [pair for pair in PAIRS if not pair[2] and same(pair)]
    mark.need(
        len(merged) < sum(not pair[2] for pair in PAIRS),
        "different messages stay different",
        "all messages become one",
        "keep the words; replace addresses and numbers only",
    )
    none_done = all(mark.run(normalise, text) == text for pair in PAIRS for text in pair[:2])
    removed = not none_done and len(missed) < len([pair for pair in PAIRS if pair[2]])
    first = missed[0] if missed else ("", "", True, "")
    mark.require(
        not missed,
        1,
        "one message from two ranks that differ in numbers or addresses only",
        f"`{first[0]}` and `{first[1]}` stay different",
        likely(
            (none_done, "`re.sub(pattern, put, message)` returns a new text: use it"),
            (first[3] == "hex", "addresses first: 0x, then digits and the letters a to f"),
            otherwise=first[3],
        ),
    )
    first = merged[0] if merged else ("", "", False, "")
    mark.require(
        not merged,
        2,
        "different messages stay different",
        f"`{first[0]}` and `{first[1]}` became one",
        first[3],
        after=removed,
    )


def count(mark: Marker, count: Callable) -> None:
    def ask(output: dict[int, str]) -> dict:
        got = mark.run(count, dict(output), right_normalise, none_passes=True)
        mark.need(
            isinstance(got, Mapping) and {"complete", "cut", "silent"} <= set(got),
            'a dict with the keys "complete", "cut" and "silent"',
            show(got),
        )
        return {key: got[key] for key in ("complete", "cut", "silent")}

    other = WHOLE.replace("26", "25")
    output = {3: "", 0: WHOLE, 1: f"{other}\nChainerMN:\n   Calling MPI_Abort()", 2: "epoch 1"}
    got, right = ask(output), right_count(output, right_normalise)
    message = right_normalise("TypeError: Cannot interpret '26' as a data type")
    complete = got["complete"] if isinstance(got["complete"], Mapping) else {}
    mark.require(
        got == right,
        1,
        "ranks 0 and 1 under one message, ranks 2 and 3 silent",
        show(got),
        likely(
            (len(complete) > 1 and message not in complete, "`normalise` the line of the error"),
            (
                any("Abort" in key or "ChainerMN" in key for key in complete),
                "the first line without indent, not the last",
            ),
            (
                complete.get(message) == [0] and got["cut"] == [1],
                "the first line without indent, not the last: rank 1 has lines behind its error",
            ),
            (complete.get(message) in ([0], [1]), "ranks with one message share a list"),
            (any(HEADER in key for key in complete), "the error stands below the header"),
            (complete.get(message) == 2 or _in_order(got) == right, "lists of ranks, sorted"),
            (got["cut"] == [2, 3] or got["silent"] == [], "without a header a rank is silent"),
            otherwise="the line of the error is the first one behind the header without indent",
        ),
    )
    output = {0: WHOLE, 1: CUT, 2: f"loss 0.3\n{HEADER}", 3: ""}
    got = ask(output)
    mark.require(
        got == right_count(output, right_normalise),
        1,
        "ranks 1 and 2 cut, rank 3 silent",
        show(got),
        likely(
            (1 in got["silent"], "a header without an error is a cut traceback, not a silent rank"),
            (got["cut"] == [1], "a traceback may end right after its header"),
            otherwise="cut: a header, and no line without indent behind it",
        ),
    )
    got = ask({0: CHAINED, 1: CHAINED})
    mark.require(
        got == right_count({0: CHAINED, 1: CHAINED}, right_normalise),
        1,
        "a chained exception counts once, under its first error (KeyError)",
        show(got),
        likely(
            (any("TypeError" in key for key in got["complete"]), "the first error is the root"),
            otherwise="stop at the first line without indent behind the first header",
        ),
    )


def _in_order(got: Mapping) -> dict:
    """The answer with sorted lists of ranks; what is no collection of ranks stays as it is."""

    def ordered(value: object) -> object:
        if isinstance(value, Mapping):
            return _in_order(value)
        return sorted(value) if isinstance(value, list | tuple | set) else value

    return {key: ordered(value) for key, value in got.items()}


def verdict(mark: Marker, verdict: Callable) -> None:
    words = ("all ranks", "some ranks", "undetermined")
    cases = {
        (4, 4, True): "all ranks",
        (4, 4, False): "all ranks",
        (4, 3, True): "some ranks",
        (8, 1, True): "some ranks",
        (4, 1, False): "undetermined",
        (8, 7, False): "undetermined",
    }
    got = {case: mark.run(verdict, *case, none_passes=True) for case in cases}
    odd = [case for case, answer in got.items() if answer not in words]
    mark.need(
        not odd,
        f"one of the words {', '.join(map(repr, words))}",
        f"{show(got[odd[0]])} for {_case(odd[0])}" if odd else "",
        "every way through the function ends with `return` and one of these words",
    )

    def wrong(*right: str) -> list[tuple]:
        return [case for case in cases if cases[case] in right and got[case] != cases[case]]

    known = wrong("all ranks", "some ranks")
    mark.require(
        not known,
        1,
        "`all ranks` for N of N, `some ranks` for fewer that had time",
        f"{show(got[known[0]])} for {_case(known[0])}" if known else "",
        likely(
            (known and known[0] == (4, 4, False), "N of N is strong, even if the job was aborted"),
            (known and known[0][0] == known[0][1], "compare n_complete with n_ranks"),
            otherwise="the others had time and said nothing: so it depends on the rank",
        ),
    )
    open_ = wrong("undetermined")
    mark.require(
        not open_,
        1,
        "`undetermined` for fewer that had no time",
        f"{show(got[open_[0]])} for {_case(open_[0])}" if open_ else "",
        likely(
            (open_ == [(8, 7, False)], "7 of 8 is no proof either: the abort cut the last one off"),
            otherwise="the others were ended before they could print: silence means nothing here",
        ),
        after=len(set(got.values())) > 1,
    )


def _case(case: tuple) -> str:
    n_ranks, n_complete, had_time = case
    return f"{n_complete} of {n_ranks}, {'with' if had_time else 'without'} time for the others"


def identify(mark: Marker, identify: Callable) -> None:
    try:
        found = start(identify, ranks=RANKS, time_limit_s=TIME_LIMIT_S)
    except LaunchError as error:
        mark.need(False, "an answer on each of four ranks", str(error))
    mark.need(
        all(isinstance(one, Mapping) and {"rank", "device", "size"} <= set(one) for one in found),
        'a dict with the keys "rank", "device" and "size" on each rank',
        show(found[0]),
    )
    ranks, devices, sizes = ([one[key] for one in found] for key in ("rank", "device", "size"))
    mark.need(
        all(isinstance(n, int) for n in (*ranks, *devices, *sizes)) and min(sizes) > 0,
        "whole numbers, and a size of at least 1",
        show(found[0]),
        "`world.rank` and `world.size` are such numbers",
    )
    unique = mark.require(
        ranks == list(range(RANKS)),
        1,
        "the processes 0 to 3 have the ranks 0, 1, 2, 3",
        f"{show(ranks)}",
        likely(
            (ranks == [0, 1, 0, 1], "that is the number on the node: two processes have one name"),
            (ranks == [0, 0, 1, 1], "that is the number of the node"),
            otherwise="`world.rank` is the number among all",
        ),
    )
    mark.require(
        devices == [0, 1, 0, 1],
        1,
        "the devices 0, 1 on each node",
        f"{show(devices)}",
        likely(
            (
                devices == [0, 1, 2, 3],
                "a node has the devices 0 and 1 only: the number on the node",
            ),
            (devices == [0, 0, 0, 0], "all on device 0: the number on the node is `node.rank`"),
            otherwise="`node.rank` is the number on the node",
        ),
        after=unique,
    )
    shares = [n for one in found for n in range(N_SENTENCES)[one["rank"] :: one["size"]]]
    mark.require(
        sorted(shares) == list(range(N_SENTENCES)),
        1,
        "each sentence belongs to exactly one process",
        f"{len(set(shares))} of {N_SENTENCES} sentences are read, {len(shares)} times together",
        likely(
            (set(sizes) != {RANKS}, "size counts all processes, not those of a node"),
            otherwise="a share is numbers[rank::size]",
        ),
        after=unique,
    )
