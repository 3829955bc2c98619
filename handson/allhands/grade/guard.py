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


class Printed:
    """What a block wrote to stdout and stderr; complete after the block."""

    text = ""


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """Catch everything that the block prints, warns or logs, from Python, C code and child
    processes.
    """
    printed, written = Printed(), io.StringIO()
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
    what = f"{type(error).__name__}: {error}".rstrip(": ") if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        what = "a call that ends the program (`sys.exit` or `quit`)"
    elif isinstance(error, KeyboardInterrupt):
        what = "an interrupt from the keyboard or from the grader's time limit"
    if isinstance(error, SyntaxError):
        return f"Seen: {what} (line {error.lineno}: `{(error.text or '').strip()}`)."
    frame = _their_line(error, answers)
    if frame is None:
        return f"Seen: {what}, when the check used your answer. Try: look at its type and shape."
    line = (frame.line or linecache.getline(frame.filename, frame.lineno)).strip()
    return f"Seen: {what}. Try: look at line {frame.lineno} of `{frame.name}`: `{line}`"


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
