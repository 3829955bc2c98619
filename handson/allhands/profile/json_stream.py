"""How does one read a trace of hundreds of megabytes? One event at a time.

A Chrome trace is `{"key": value, ..., "traceEvents": [event, ...], ...}` or only the list. Python's
decoder takes one value at a time from a buffer, which is filled as far as that value needs.
"""

import json
import re
from collections.abc import Iterator
from typing import IO

CHUNK_CHARS = 1 << 20
LONGEST_VALUE_CHARS = 1 << 26  # one event or one value beside the events; real ones are small
LITERAL_CHARS = 6  # no literal is longer, such as `false`
EVENTS = "traceEvents"
_SPACE = re.compile(r"[ \t\r\n]*")


class NotJson(ValueError):
    """The text is no JSON, or ends too early. `at_end`: it ends too early."""

    def __init__(self, message: str, *, at_end: bool = False) -> None:
        super().__init__(message)
        self.at_end = at_end


class _Buffer:
    """The part of a text that is being decoded."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._decode = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._ended = False

    def _fill(self, n_chars: int) -> None:
        more = self._file.read(n_chars)
        self._ended = not more
        self._text = self._text[self._at :] + more
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is no space, "" at the end; it stays in the buffer."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._fill(CHUNK_CHARS)

    def take(self, expected: str) -> None:
        """Go past `expected`, or raise NotJson."""
        seen = self.peek()
        if seen != expected:
            raise NotJson(f"expected {expected!r}, saw {seen!r}", at_end=not seen)
        self._at += 1

    def value(self) -> object:
        """Return the next JSON value."""
        self.peek()
        wanted = CHUNK_CHARS
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended or len(self._text) - self._at > LONGEST_VALUE_CHARS:
                    raise NotJson(error.msg, at_end=self._ended and _cut_off(error)) from error
            except ValueError as error:  # a number with thousands of digits
                raise NotJson("it holds a number that is too long") from error
            except RecursionError as error:
                raise NotJson("it is nested too deeply") from error
            else:
                if end < len(self._text) or self._ended:  # a number may go on after the buffer
                    self._at = end
                    return value
            self._fill(wanted)
            wanted *= 2  # so that one long value is not decoded again and again


def _cut_off(error: json.JSONDecodeError) -> bool:
    """Whether only the end of the text is missing."""
    return error.msg.startswith("Unterminated string") or error.pos > len(error.doc) - LITERAL_CHARS


def events(file: IO[str], header: dict) -> Iterator[object]:
    """Yield the events of a Chrome trace as they are read.

    header: gets the other keys of the trace; those that stand behind the events when these are all
    read, and `traceEvents`: True where there is that list. Raises NotJson.
    """
    buffer = _Buffer(file)
    if buffer.peek() == "[":
        header[EVENTS] = True
        yield from _items(buffer)
    else:
        buffer.take("{")
        while buffer.peek() != "}":
            key = buffer.value()
            buffer.take(":")
            if key == EVENTS and buffer.peek() == "[":
                header[EVENTS] = True
                yield from _items(buffer)
            else:
                header[key if isinstance(key, str) else ""] = buffer.value()
            if buffer.peek() != ",":
                break
            buffer.take(",")
        buffer.take("}")
    if rest := buffer.peek():
        raise NotJson(f"expected the end, saw {rest!r}")


def _items(buffer: _Buffer) -> Iterator[object]:
    buffer.take("[")
    while buffer.peek() != "]":
        yield buffer.value()
        if buffer.peek() != ",":
            break
        buffer.take(",")
    buffer.take("]")
