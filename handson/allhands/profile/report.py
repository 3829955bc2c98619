"""What share of the matrix time ran on Tensor Cores, what did not, and why?

Matrix time is the time of kernels that multiply matrices: GEMM, convolution, recurrent layers,
attention. The share is that of kernels known to use Tensor Cores; where a name leaves it open, the
true share lies between `tensor_core_share` and `tensor_core_share + unknown_share`.
"""

from dataclasses import asdict, dataclass, field

from allhands.profile import kernels
from allhands.profile.launches import Trace
from allhands.profile.why import Why, dtype_of, why

SHOWN = 12  # kernels in the printed report
NAME_CHARS = 64
TIMED = "Export the profile again, with the times of the kernels."


@dataclass(frozen=True)
class Kernel:
    """One kernel in one layer. tensor_core: None where the name leaves it open, or no matrix."""

    name: str
    calls: int
    total_s: float
    kind: str
    tensor_core: bool | None
    dtype: str | None
    layer: str | None
    operator: str | None
    why: Why | None = None

    @property
    def loads(self) -> int | None:
        """Values loaded at once, where it is on Tensor Cores but by a kernel for odd dimensions."""
        aligned = kernels.alignment(self.name) if self.tensor_core else None
        return aligned if aligned and aligned < kernels.FULL_LOAD.get(self.dtype or "", 0) else None


@dataclass(frozen=True)
class Report:
    """See the file's docstring. kernels: the longest first."""

    trace: Trace = field(repr=False)
    kernels: tuple[Kernel, ...]

    @property
    def total_s(self) -> float:
        """Time of all kernels."""
        return sum(one.total_s for one in self.kernels)

    @property
    def matrix_s(self) -> float:
        """Time of the matrix kernels."""
        return sum(one.total_s for one in self._matrix)

    @property
    def _matrix(self) -> list[Kernel]:
        return [one for one in self.kernels if one.kind == kernels.MATRIX]

    def _share(self, tensor_core: bool | None) -> float | None:
        if not self.matrix_s > 0:
            return None
        return (
            sum(one.total_s for one in self._matrix if one.tensor_core is tensor_core)
            / self.matrix_s
        )

    @property
    def tensor_core_share(self) -> float | None:
        """Share of the matrix time on Tensor Cores, 0 to 1; None if there is no matrix kernel."""
        return self._share(True)

    @property
    def unknown_share(self) -> float | None:
        """Share of the matrix time of which the names do not say it."""
        return self._share(None)

    @property
    def not_on_tensor_cores(self) -> tuple[dict, ...]:
        """Matrix kernels that did not run on Tensor Cores, the longest first, with the reason.

        Each: kernel, why (a sentence), reason (its code, see why.py), layer, operator, dtype,
        dimension and size (if one is to blame), calls, total_s, share (of the matrix time).
        """
        return tuple(
            {
                "kernel": one.name,
                "why": one.why.sentence,
                "reason": one.why.code,
                "layer": one.layer,
                "operator": one.operator,
                "dtype": one.dtype,
                "dimension": one.why.dimension or None,
                "size": one.why.size,
                "calls": one.calls,
                "total_s": one.total_s,
                "share": one.total_s / self.matrix_s if self.matrix_s > 0 else None,
            }
            for one in self._matrix
            if one.tensor_core is False
        )

    def as_dict(self) -> dict:
        """The report as JSON takes it."""
        rows = [{**asdict(one), "loads": one.loads} for one in self.kernels]
        for row in rows:
            row["why"] = row["why"] and row["why"]["sentence"]
        return {
            "tensor_core_share": self.tensor_core_share,
            "unknown_share": self.unknown_share,
            "kernels": rows,
            "not_on_tensor_cores": list(self.not_on_tensor_cores),
            "matrix_s": self.matrix_s,
            "total_s": self.total_s,
            "trace": str(self.trace.path),
            "format": self.trace.format,
            "chip": self.trace.chip or None,
            "origin": self.trace.origin or None,
        }

    def __str__(self) -> str:
        return "\n".join(map(printable, _lines(self)))


def report(trace: Trace) -> Report:
    """Judge every kernel of a profile by its name and its operator."""
    groups: dict[tuple, list] = {}
    for one in trace.launches:
        said = kernels.said(one.name)
        kind = said.kind
        dtype = said.dtype or (dtype_of(one.types) if kind == kernels.MATRIX else "")
        reason = None
        if kind == kernels.MATRIX and said.tensor_core is False:
            reason = why(one, trace.chip)
        key = (one.name, kind, said.tensor_core, dtype, one.layer, one.operator, reason)
        sums = groups.setdefault(key, [0, 0.0])
        sums[0] += one.calls
        sums[1] += one.total_s
    found = [
        Kernel(name, calls, total_s, kind, on, dtype or None, layer or None, operator or None, why_)
        for (name, kind, on, dtype, layer, operator, why_), (calls, total_s) in groups.items()
    ]
    found.sort(key=lambda one: (-one.total_s, one.name, one.layer or ""))
    return Report(trace, tuple(found))


def _lines(report: Report):
    trace = report.trace
    about = f"{trace.format}{', ' + trace.chip if trace.chip else ''}"
    yield f"{trace.path.name} ({about}): {1e3 * report.total_s:.4g} ms in kernels"
    if trace.origin:
        yield f"origin: {trace.origin}"
    share = report.tensor_core_share
    if not report.total_s > 0:
        yield f"All kernels have time 0 in this trace, so there is no share. {TIMED}"
    elif share is None and any(one.kind == kernels.MATRIX for one in report.kernels):
        yield f"All kernels that multiply matrices have time 0, so there is no share. {TIMED}"
    elif share is None:
        yield "No kernel in this trace multiplies matrices."
    else:
        yield (
            f"Tensor Cores: {share:.1%} of the matrix time "
            f"({1e3 * report.matrix_s:.4g} ms, {report.matrix_s / report.total_s:.0%} of all)"
        )
        if report.unknown_share:
            most = share + report.unknown_share
            yield f"  at least: some names leave it open, so it is {share:.1%} to {most:.1%}."
    yield ""
    yield f"{'time (ms)':>10} {'calls':>6} {'kind':13} {'TC':4} {'dtype':5} kernel"
    for one in report.kernels[:SHOWN]:
        on = {True: "yes", False: "no", None: "?" if one.kind == kernels.MATRIX else ""}
        where = f"  [{one.layer or one.operator}]" if one.layer or one.operator else ""
        yield (
            f"{1e3 * one.total_s:10.4g} {one.calls:6} {one.kind:13} {on[one.tensor_core]:4} "
            f"{one.dtype or '':5} {short(one.name)}{where}"
        )
    if len(report.kernels) > SHOWN:
        rest_s = sum(one.total_s for one in report.kernels[SHOWN:])
        yield f"{1e3 * rest_s:10.4g} in {len(report.kernels) - SHOWN} more"
    off = report.not_on_tensor_cores
    for one in report.kernels:
        if one.loads:
            yield (
                f"On Tensor Cores, but it loads {one.loads} value(s) at a time (a dimension is no "
                f"multiple of {kernels.FULL_LOAD[one.dtype]}): {short(one.name)}"
            )
    if off:
        yield ""
        yield "Not on Tensor Cores:"
    for one in off[:SHOWN]:
        where = one["layer"] or one["operator"]
        part = "" if one["share"] is None else f"{one['share']:.1%} "
        yield (f"  {part}{short(one['kernel'])}{f' [{where}]' if where else ''}: {one['why']}")


def short(name: str) -> str:
    """Return a name that fits on a line."""
    return name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"


def printable(text: str) -> str:
    """Return a text with characters that a terminal would obey or not show written out: `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )
