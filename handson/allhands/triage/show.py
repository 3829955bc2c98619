"""`allhands triage`: read, answer, and print as text or JSON, with a page on request."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from allhands.triage.page import page
from allhands.triage.report import say
from allhands.triage.scan import triage


def show(logs: Sequence[Path], *, as_json: bool = False, html: Path | None = None) -> bool:
    """Print the answer for one job's logs; True if a failure was found.

    Raises read.UnreadableLog for what is no log, OSError if the page cannot be written.
    """
    answer = triage(logs)
    if html is not None:
        html.write_text(page(answer), encoding="utf-8")
    if as_json:
        json.dump(answer.as_dict(), sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        say(answer, Console(highlight=False))
    return answer.failed
