"""What does a group show at the end? A results page of one page, with figures from its own runs.

    python handson/hack_owncode/fill.py --one runs/one --two runs/two --check check.json

The template has names in braces. What a run can tell is filled in; what only people know stays a
gap (`___`), to be written by hand.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from allhands.train.own_program import Record

GAP = "___"
WORDS = ("group", "what", "trouble", "next")
TEMPLATE = """\
# {group}

**What.** {what}

| | ranks | samples a second | loss at the end | right answers |
|---|---|---|---|---|
| before | {one_ranks} | {one_speed} | {one_loss} | {one_right} |
| after | {two_ranks} | {two_speed} | {two_loss} | {two_right} |

Speed-up: {speed_up}. How it was measured: median of {steps} steps, the first three left out, the
same work in both.

**The same answer?** Largest relative difference of the losses, step by step: {difference}.

**What `allhands check` said:** {checked}.

**What went wrong, and what it was.** {trouble}

**Next.** {next}
"""


def difference(one: Record, two: Record) -> float:
    """The largest relative difference of the two runs' losses, step by step."""
    pairs = zip(one.losses, two.losses, strict=True)
    return max(abs(a - b) / abs(a) for a, b in pairs)


def speed_up(one: Record, two: Record) -> float:
    """How many times as many samples a second the second run trains on."""
    return two.samples_per_s / one.samples_per_s


def figures(one: Record | None, two: Record | None, checked: Mapping | None) -> dict[str, str]:
    """What runs and the check can tell, as text by the template's names."""
    said = {}
    for name, record in (("one", one), ("two", two)):
        if record is not None:
            said |= {
                f"{name}_ranks": str(record.ranks),
                f"{name}_speed": f"{record.samples_per_s:,.0f}",
                f"{name}_loss": f"{record.losses[-1]:.4f}",
                f"{name}_right": f"{record.share_right:.1%}",
            }
    if one is not None and two is not None:
        said["speed_up"] = f"{speed_up(one, two):.2f} on {two.ranks} ranks"
        said["steps"] = str(len(two.times_s))
        if len(one.losses) == len(two.losses):
            said["difference"] = f"{difference(one, two):.1e}"
    if checked is not None:
        counts = [f"{n} {name}" for name, n in checked["counts"].items() if n]
        said["checked"] = ", ".join(counts) or "nothing"
    return said


def page(
    words: Mapping[str, str],
    one: Record | None = None,
    two: Record | None = None,
    checked: Mapping | None = None,
    template: str = TEMPLATE,
) -> str:
    """The page. words: what only people know (`WORDS`); checked: `allhands check --json`."""

    class Gaps(dict):
        def __missing__(self, key: str) -> str:
            return GAP

    known = {name: words[name] for name in WORDS if words.get(name)}
    return template.format_map(Gaps(known | figures(one, two, checked)))


def read_json(path: Path | None) -> dict | None:
    """A JSON file, or None. ValueError in a sentence if it holds none."""
    if path is None:
        return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no JSON file that can be read ({error}).") from error
