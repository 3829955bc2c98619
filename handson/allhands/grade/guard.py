"""Run a participant's code calmly: what it prints is kept, endless loops end, errors become
sentences.

nbgrader gives 0 points to a graded cell that wrote anything to stderr, so nothing may reach it
while a check runs: not from print, warnings, logging, nor from C code or child processes.
"""

import contextlib
import io
import linecache
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from types import FunctionType

WIDTH = 200  # of an error's message or a line of code, so many characters are shown
CHAINER_SHAPES = "Chainer does not take arrays of these shapes or dtypes: look at shape and dtype."


class TooLong(BaseException):
    """Time is up. Not an Exception, so that `except Exception` in the participant's code lets it
    pass.
    """


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block after `seconds`, and again each second until the block ends.

    It needs SIGALRM and the main thread; elsewhere it does nothing. A timer that ran before goes on
    after. A long call into C code ends only when it comes back to Python.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal, _frame):
        raise TooLong

    start_s = time.monotonic()
    old_handler = signal.signal(signal.SIGALRM, ring)
    old_s, old_interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        if old_s > 0:
            left_s = max(old_s - (time.monotonic() - start_s), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left_s, old_interval_s)


class _Text(io.StringIO):
    """Stays open: what was printed is read after a block that calls `sys.stdout.close()`."""

    def close(self) -> None:
        pass


class Printed:
    """What a block wrote to stdout and stderr; complete after the block."""

    text = ""


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """Catch everything that the block prints, warns or logs, from Python, C code and child
    processes.
    """
    printed, written = Printed(), _Text()
    disabled = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        low_level = stack.enter_context(_captured_descriptors())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        warnings.showwarning = _print_warning
        stack.enter_context(contextlib.redirect_stdout(written))
        stack.enter_context(contextlib.redirect_stderr(written))
        logging.disable(logging.CRITICAL)
        try:
            yield printed
        finally:
            logging.disable(disabled)
            low_level.seek(0)
            printed.text = written.getvalue() + low_level.read().decode("utf-8", "replace")


def _print_warning(message, category, *_where) -> None:
    print(f"{category.__name__}: {message}", file=sys.stderr)


@contextlib.contextmanager
def _captured_descriptors() -> Iterator[io.BufferedIOBase]:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with tempfile.TemporaryFile() as file:
        saved = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in saved:
                os.dup2(file.fileno(), number)
            yield file
        finally:
            for number, copy in saved.items():
                os.dup2(copy, number)
                os.close(copy)


def describe(error: BaseException, answers: tuple[object, ...]) -> str:
    """One sentence on an error: its type, its message, and the line of the participant's code."""
    message = _message(error)
    what = f"{type(error).__name__}: {_cut(message)}".rstrip(": ")
    if isinstance(error, SystemExit):
        what = "a call that ends the program (`sys.exit` or `quit`)"
    elif isinstance(error, KeyboardInterrupt):
        what = "an interrupt from the keyboard or from the grader's time limit"
    if isinstance(error, SyntaxError):
        return f"Seen: {what} (line {error.lineno}: `{_cut((error.text or '').strip())}`)."
    refused = type(error).__module__ == "chainer.utils.type_check" or "An Expr instance" in message
    advice = f"{CHAINER_SHAPES} Try:" if refused else "Try:"
    frame = _their_line(error, answers)
    if frame is None:
        return (
            f"Seen: {what}, when the check used your answer. {advice} look at its type and shape."
        )
    line = (frame.line or linecache.getline(frame.filename, frame.lineno)).strip()
    return f"Seen: {what}. {advice} look at line {frame.lineno} of `{frame.name}`: `{_cut(line)}`"


def _message(error: BaseException) -> str:
    """The first line of `str(error)`, which is the participant's code if the class is theirs."""
    try:
        return str(error).strip().partition("\n")[0].rstrip(". ")
    except BaseException:
        return "its message cannot be read"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 4] + " ..."


def _their_line(error: BaseException, answers: tuple[object, ...]) -> traceback.FrameSummary | None:
    """The innermost frame of the participant: in a file of the answers, or in a notebook cell."""
    files = {name for each in answers if (name := _file_of(each))}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (
            frame.filename in files
            or "ipykernel_" in frame.filename
            or "<ipython" in frame.filename
        ):
            return frame
    return None


def _file_of(answer: object) -> str | None:
    functions = [answer, *vars(answer).values()] if isinstance(answer, type) else [answer]
    for each in functions:
        function = getattr(each, "__func__", each)
        if isinstance(function, FunctionType):
            return function.__code__.co_filename
    return _file_of(type(answer)) if not isinstance(answer, type | FunctionType) else None
