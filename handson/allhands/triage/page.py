"""The answer as one HTML file: ranks side by side, evidence marked, root against consequence.

Self-contained: no script, no network. Everything from the log is escaped.
"""

from dataclasses import dataclass

import jinja2

from allhands.triage.failure import Root
from allhands.triage.report import ANSWERS, ranks_text
from allhands.triage.scan import Triage

MOST_RANKS = 64
MOST_LINES = 120  # a rank


@dataclass(frozen=True)
class Shown:
    """One line: where it stands in the file, its text, and what it is evidence for ("" none)."""

    number: int
    text: str
    of: str


@dataclass(frozen=True)
class Column:
    """One rank (None: lines without a rank), what became of it, and its lines."""

    rank: int | None
    state: str
    node: str
    lines: tuple[Shown, ...]
    culprit: bool


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Triage: {{ names }}</title>
<style>
:root { color-scheme: light dark; --root: #c62828; --after: #9e6a03; --cause: #1565c0; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 110rem;
       padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 1.2rem 0 .3rem; }
.facts { color: GrayText; }
.ranks { display: grid; gap: .8rem;
         grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
.rank { border: 1px solid color-mix(in srgb, currentColor 25%, transparent);
        border-radius: .4rem; overflow: hidden; min-width: 0; }
.rank h3 { font-size: 1rem; margin: 0; padding: .3rem .6rem;
           background: color-mix(in srgb, currentColor 8%, transparent); }
.rank pre { margin: 0; padding: .4rem 0; overflow-x: auto; font-size: .8rem; max-height: 30rem; }
.rank pre span { display: block; padding: 0 .6rem; white-space: pre; }
.rank pre b { color: GrayText; font-weight: normal; user-select: none; }
.root { background: color-mix(in srgb, var(--root) 22%, transparent);
        border-left: .3rem solid var(--root); }
.consequence { background: color-mix(in srgb, var(--after) 20%, transparent);
        border-left: .3rem solid var(--after); }
.cause { background: color-mix(in srgb, var(--cause) 20%, transparent);
        border-left: .3rem solid var(--cause); }
.key span { padding: .1rem .5rem; margin-right: .6rem; }
code { font-size: .9em; }
</style></head><body>
<h1>{{ answer.root_error_class if answer.failed else "No failure found" }}</h1>
<p class="facts">{{ names }}: {{ answer.lines }} lines, {{ answer.launcher }},
{{ answer.world_size }} ranks</p>
{% if answer.failed %}
<p><code>{{ answer.message }}</code>{% if answer.root_frame %}<br>at
<code>{{ answer.root_frame }}</code>{% endif %}</p>
<h2>Does it depend on the rank? {{ word }}</h2>
<p>{{ answer.verdict }} {{ answer.patterns | join(" ") }}</p>
{% endif %}
<h2>Likely cause: {{ answer.cause_id }}</h2>
<p>{{ answer.cause }}{% if answer.failed %} Look at {{ culprits }}.{% endif %}</p>
<h2>Next experiment</h2><p>{{ answer.next_step }}</p>
{% if answer.roots | length > 1 %}<h2>Other failures in the log</h2>
<ul>{% for other in answer.roots[1:6] %}<li>{{ other.error_class }} on ranks
{{ other.ranks | join(", ") }}: {{ other.signature }}</li>{% endfor %}</ul>{% endif %}
{% if answer.secondary_errors %}<h2>Only consequences</h2>
<ul>{% for error in answer.secondary_errors %}<li>{{ error }}</li>{% endfor %}</ul>{% endif %}
<h2>Rank by rank</h2>
<p class="key"><span class="root">root</span><span class="consequence">consequence</span>
<span class="cause">evidence of the cause</span></p>
<div class="ranks">{% for column in columns %}
<section class="rank"><h3>{% if column.rank is none %}launcher, and lines without a rank
{% else %}rank {{ column.rank }}{% if column.node %} on {{ column.node }}{% endif %}{% endif %}:
{{ column.state }}{% if column.culprit %}, look here{% endif %}</h3>
<pre>{% for line in column.lines -%}
<span class="{{ line.of }}"><b>{{ "%6d  " | format(line.number) }}</b>{{ line.text }}</span>
{%- endfor %}</pre></section>{% endfor %}</div>
{% if hidden %}<p>{{ hidden }} more ranks are not shown.</p>{% endif %}
</body></html>
"""


def page(answer: Triage) -> str:
    """The whole HTML text."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    columns = _columns(answer)
    word, _ = ANSWERS[answer.rank_dependent]
    return environment.from_string(TEMPLATE).render(
        answer=answer,
        names=", ".join(answer.files[:3]),
        columns=columns,
        hidden=max(0, answer.world_size - MOST_RANKS),
        word=word,
        culprits=ranks_text(answer.culprit_ranks),
    )


def _columns(answer: Triage) -> list[Column]:
    ranks: list[int | None] = [None, *range(min(answer.world_size, MOST_RANKS))]
    first = answer.found.roots[0] if answer.found.roots else None
    marked = _marked(answer, first)
    columns = []
    for rank in ranks:
        lines = _lines(answer, rank, marked)
        if rank is None and not lines:
            continue
        columns.append(
            Column(
                rank, _state(answer, rank), answer.world.node_of.get(rank, ""), lines,
                rank in answer.culprit_ranks,
            )
        )  # fmt: skip
    worst = {"root": 0, "cut": 1}
    return sorted(columns, key=lambda c: (c.rank is None, worst.get(c.state, 2), c.rank or 0))


def _marked(answer: Triage, first: Root | None) -> dict[tuple[int, int], str]:
    """What each line is evidence for, by file and line number."""
    marked: dict[tuple[int, int], str] = {}
    names = {path.name: i for i, path in enumerate(answer.facts.files)}
    for line in answer.evidence:
        name, _, number = line.place.rpartition(":")
        of = {"end": "consequence"}.get(line.of, line.of)
        marked[names.get(name, 0), int(number)] = of
    for other in answer.found.secondary:
        for file, number, _ in other.evidence:
            marked[file, number] = "consequence"
    for file, number, _ in first.evidence if first else ():
        marked[file, number] = "root"
    return marked


def _lines(
    answer: Triage, rank: int | None, marked: dict[tuple[int, int], str]
) -> tuple[Shown, ...]:
    found: dict[tuple[int, int, str], None] = {}
    for event in answer.facts.events:
        if event.rank == rank:
            found.update({(event.file, number, text): None for number, text in event.lines})
    if rank in answer.facts.ranks:
        found.update({line: None for line in answer.facts.ranks[rank].last})
    for line in answer.facts.all_lines():
        if line.rank == rank and (line.file, line.number) in marked:
            found[line.file, line.number, line.text] = None
    short = sorted({(f, n, t[:500]) for f, n, t in found})[:MOST_LINES]
    return tuple(Shown(n, t, marked.get((f, n), "")) for f, n, t in short if t.strip())


def _state(answer: Triage, rank: int | None) -> str:
    if rank is None:
        return "not of one rank"
    for name in ("complete", "cut", "silent", "healthy"):
        if rank in getattr(answer.count, name):
            if name == "complete":
                return "root" if answer.failed else "healthy"
            followed = any(rank in other.ranks for other in answer.found.secondary)
            return "consequence" if name == "healthy" and followed else name
    return "unknown"
