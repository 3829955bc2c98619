"""Which gradients does a backward pass give, when, and how large are they?

Conventions: gradients are numbered in order of arrival from 0 (the last layer's comes first). Time
0 is the start of the forward pass; the backward pass starts at forward_s. Times in seconds, sizes
in bytes.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

SIZE_COLUMNS = ("n_bytes", "bytes_fp32", "bytes_fp32_padded")
NAME_COLUMNS = ("name", "first_param", "caffe_param_id")


@dataclass(frozen=True)
class Gradients:
    """Ready time and size of each gradient, in order of arrival.

    ready_s: (L,) when gradient i may be sent; never falls, starts at forward_s or later.
    n_bytes: (L,) its size; 0 is fine. names: (L,) or empty.
    Any sequence of numbers is taken, arrays too. Raises ValueError, with a sentence, for empty or
    contradictory input: different lengths, negative or non-finite values, ready times that fall.
    """

    ready_s: tuple[float, ...]
    n_bytes: tuple[float, ...]
    forward_s: float = 0.0
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ready_s, n_bytes = _plain(self.ready_s), _plain(self.n_bytes)
        object.__setattr__(self, "ready_s", ready_s)
        object.__setattr__(self, "n_bytes", n_bytes)
        object.__setattr__(self, "names", tuple(self.names))
        if not ready_s:
            raise ValueError("There is nothing to plan: expected at least one gradient, saw none.")
        if len(n_bytes) != len(ready_s) or len(self.names) not in (0, len(ready_s)):
            raise ValueError(
                f"Each gradient needs a time, a size and, if any has one, a name: saw "
                f"{len(ready_s)} times, {len(n_bytes)} sizes and {len(self.names)} names."
            )
        _check_numbers("forward_s", (self.forward_s,))
        _check_numbers("ready_s", ready_s)
        _check_numbers("n_bytes", n_bytes)
        before_s = self.forward_s
        for i, now_s in enumerate(ready_s):
            if now_s < before_s:
                what = f"gradient {i - 1} is ready" if i else "the forward pass ends"
                raise ValueError(
                    f"Gradients must be given in order of arrival: gradient {i} is ready at "
                    f"{now_s} s, but {what} at {before_s} s. Sort them by ready time."
                )
            before_s = now_s

    @classmethod
    def from_backward(
        cls,
        backward_s: Sequence[float],
        n_bytes: Sequence[float],
        *,
        forward_s: float | None = None,
        names: Sequence[str] = (),
    ) -> "Gradients":
        """Make gradients from the piece of the backward pass that makes each, (L,) seconds.

        Without `forward_s` the forward pass takes half as long as the backward pass, as the authors
        of MG-WFBP assume in their scripts.
        """
        backward_s = _plain(backward_s)
        _check_numbers("backward_s", backward_s)
        if forward_s is None:
            forward_s = 0.5 * sum(backward_s)
        _check_numbers("forward_s", (forward_s,))
        ready_s = tuple(accumulate(backward_s, initial=forward_s))[1:]
        return cls(ready_s, n_bytes, forward_s, tuple(names))

    def __len__(self) -> int:
        return len(self.ready_s)

    @cached_property
    def bytes_before(self) -> list[float]:
        """(L + 1,): bytes of all gradients before i. Gradients i..j have [j + 1] - [i] bytes."""
        return list(accumulate(self.n_bytes, initial=0))

    @property
    def total_bytes(self) -> float:
        return self.bytes_before[-1]

    @property
    def backward_s(self) -> tuple[float, ...]:
        """(L,): the piece of the backward pass that ends with gradient i."""
        before_s = (self.forward_s, *self.ready_s)
        return tuple(now - before for before, now in zip(before_s, self.ready_s, strict=False))

    @property
    def compute_s(self) -> float:
        """Time of forward and backward pass together: no iteration is shorter."""
        return self.ready_s[-1]

    def name_of(self, first: int, last: int) -> str:
        """Name gradients first..last for a person, by names if there are any."""
        names = self.names or tuple(map(str, range(len(self))))
        return names[first] if first == last else f"{names[first]}..{names[last]}"


def _plain(values: Sequence[float]) -> tuple[float, ...]:
    """Python numbers instead of NumPy's: ten times faster in a loop."""
    return tuple(values.tolist() if hasattr(values, "tolist") else values)


def _check_numbers(name: str, values: Sequence[float]) -> None:
    for i, value in enumerate(values):
        if not 0 <= value < math.inf:
            where = f"{name}[{i}]" if len(values) > 1 else name
            raise ValueError(
                f"Times and sizes must be finite and 0 or more: saw {where} = {value}. "
                "Look at how it was measured."
            )


class TraceError(ValueError):
    """What is wrong with a trace file, in one sentence that names file and line."""


def read_trace(path: Path | str, *, forward_s: float | None = None) -> Gradients:
    """Read gradients from a CSV file, one a line, in order of arrival.

    Columns: `arrival_index` (0, 1, 2, ...), a size in bytes (`bytes_fp32_padded`, `bytes_fp32` or
    `n_bytes`), `backward_s`, and maybe a name (`caffe_param_id`, `first_param` or `name`). Without
    `forward_s`, see `Gradients.from_backward`. Raises TraceError for a file that is not so.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read as a trace: {error}.") from error
    rows = csv.reader(text.splitlines())
    header = [column.strip() for column in next(rows, [])]
    size, name = _column(header, SIZE_COLUMNS), _column(header, NAME_COLUMNS)
    if size is None or not {"arrival_index", "backward_s"} <= set(header):
        raise TraceError(
            f"{path}:1: a trace has the columns arrival_index, backward_s and one of "
            f"{', '.join(SIZE_COLUMNS)}; saw {', '.join(header) or 'an empty line'}."
        )
    backward_s, n_bytes, names = [], [], []
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise TraceError(f"{where}: expected {len(header)} values, saw {len(row)}.")
        values = dict(zip(header, row, strict=True))
        index = _number(values["arrival_index"], "arrival_index", where)
        if index != len(n_bytes):
            raise TraceError(
                f"{where}: expected arrival_index {len(n_bytes)}, saw {values['arrival_index']}: "
                "lines must be in order of arrival, from 0, none missing."
            )
        n_bytes.append(_whole(_number(values[size], size, where), size, where))
        backward_s.append(_number(values["backward_s"], "backward_s", where))
        names.append(values[name].strip() if name else str(int(index)))
    if not n_bytes:
        raise TraceError(f"{path}:1: the trace has a header, but no gradient.")
    return Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s, names=names)


def write_trace(path: Path | str, gradients: Gradients) -> None:
    """Write gradients so that `read_trace`, given their `forward_s`, reads them back."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_index", "name", "n_bytes", "backward_s"])
        for i, (size, part_s) in enumerate(
            zip(gradients.n_bytes, gradients.backward_s, strict=True)
        ):
            writer.writerow([i, gradients.name_of(i, i), int(size), repr(part_s)])


def _column(header: Sequence[str], known: Sequence[str]) -> str | None:
    return next((column for column in known if column in header), None)


def _number(text: str, column: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TraceError(
            f"{where}: {column} must be a finite number of 0 or more, saw {text.strip()!r}."
        )
    return value


def _whole(value: float, column: str, where: str) -> int:
    if value != int(value):
        raise TraceError(f"{where}: {column} must be a whole number of bytes, saw {value}.")
    return int(value)
