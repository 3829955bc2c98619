"""The answer as one HTML file: ranks side by side, evidence marked, root against consequence.

Self-contained: no script, no network. Everything from the log is escaped.
"""

from dataclasses import dataclass

import jinja2

from allhands.triage.failure import Root
from allhands.triage.report import ANSWERS, ranks_text, silence
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
:root { color-scheme: light dark; --root: #d32f2f; --after: #b7791f; --cause: #1976d2;
  --calm: #388e3c; --line: color-mix(in srgb, currentColor 22%, transparent);
  --soft: color-mix(in srgb, currentColor 6%, transparent); }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 110rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; }
p { margin: .3rem 0; } .facts { opacity: .7; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, monospace; } .said { overflow-wrap: anywhere; }
.answer { display: grid; gap: .8rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
.card { border: 1px solid var(--line); border-top: .35rem solid var(--of); border-radius: .4rem;
  padding: .6rem .9rem; }
.card h2 { margin: 0 0 .3rem; font-size: .85rem; opacity: .7; font-weight: 600; }
.card strong { font-size: 1.15rem; }
.strip { display: flex; flex-wrap: wrap; gap: .25rem; margin: .6rem 0; }
.strip span { min-width: 2rem; padding: .1rem .35rem; text-align: center; border-radius: .3rem;
  border: 1px solid var(--of); font-size: .85rem;
  background: color-mix(in srgb, var(--of) 25%, transparent); }
.strip .look { outline: .16rem solid var(--root); outline-offset: .08rem; font-weight: 700; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1rem; font-size: .85rem; margin: 0 0 .8rem; }
.key i { display: inline-block; width: .9rem; height: .9rem; border-radius: .2rem;
  margin-right: .3rem; vertical-align: -.1rem; border: 1px solid var(--of);
  background: color-mix(in srgb, var(--of) 25%, transparent); }
.root, .complete { --of: var(--root); } .consequence, .cut { --of: var(--after); }
.cause { --of: var(--cause); } .healthy { --of: var(--calm); }
.silent, .other { --of: color-mix(in srgb, currentColor 45%, transparent); }
.ranks { display: grid; gap: .8rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(25rem, 100%), 1fr)); }
.rank { border: 1px solid var(--line); border-radius: .4rem; overflow: hidden; min-width: 0; }
.rank h3 { font-size: 1rem; margin: 0; padding: .3rem .7rem; background: var(--soft);
  border-left: .35rem solid var(--of); }
.rank h3 small { font-weight: 400; opacity: .8; }
.rank pre { margin: 0; padding: .3rem 0; overflow-x: auto; font-size: .8rem; max-height: 32rem; }
.rank pre span { display: block; padding: 0 .6rem 0 4rem; text-indent: -3.6rem;
  white-space: pre; border-left: .3rem solid transparent; }
.rank pre .marked { white-space: pre-wrap; overflow-wrap: anywhere; border-left-color: var(--of);
  background: color-mix(in srgb, var(--of) 18%, transparent); }
.rank pre b { display: inline-block; width: 3rem; margin-right: .6rem; text-align: right;
  text-indent: 0; opacity: .55; font-weight: normal; user-select: none; }
</style></head><body>
<h1>{{ "First failure: " ~ answer.root_error_class if answer.failed else "No failure found" }}</h1>
<p class="facts">{{ names }}: {{ answer.lines }} lines, {{ answer.launcher }},
{{ answer.world_size }} rank{{ "s" if answer.world_size != 1 }}</p>
{% if answer.failed %}
<p class="said"><code>{{ answer.message }}</code>{% if answer.root_frame %}<br>at
<code>{{ answer.root_frame }}</code>{% endif %}</p>
{% endif %}
<div class="answer">
{% if answer.failed %}
<section class="card cause"><h2>Does it depend on the rank?</h2>
<strong>{{ word }}</strong><p>{{ answer.verdict }} {{ answer.patterns | join(" ") }}
{{ silence }}</p></section>
{% endif %}
<section class="card {{ "root" if answer.failed else "healthy" }}"><h2>Likely cause</h2>
<strong>{{ answer.cause_id | replace("_", " ") }}</strong>
<p>{{ answer.cause }}{% if look %} Look at {{ culprits }}.{% endif %}</p></section>
<section class="card healthy"><h2>Next experiment</h2><p>{{ answer.next_step }}</p></section>
</div>
<h2>Rank by rank</h2>
<div class="strip">{% for column in numbered %}
<span class="{{ column.state }}{{ " look" if column.culprit }}"
title="rank {{ column.rank }}: {{ words[column.state] }}">{{ column.rank }}</span>{% endfor %}</div>
<p class="key"><span class="root"><i></i>root</span><span class="consequence"><i></i>consequence,
or cut short</span><span class="cause"><i></i>evidence of the cause</span>
<span class="healthy"><i></i>no error</span><span class="silent"><i></i>silent</span>
{% if look %}<span>framed in red: look here</span>{% endif %}</p>
<div class="ranks">{% for column in columns %}
<section class="rank"><h3 class="{{ column.state }}">{% if column.rank is none %}No single rank
<small>launcher, scheduler, shared lines</small>{% else %}rank {{ column.rank }}
<small>{% if column.node %}on {{ column.node }}, {% endif %}{{ words[column.state] }}</small>
{% if column.culprit %} &larr; look here{% endif %}{% endif %}</h3>
<pre>{% for line in column.lines -%}
<span{% if line.of %} class="marked {{ line.of }}"{% endif %}><b>{{ line.number }}</b>{{ line.text
}}</span>
{%- else -%}<span><b></b>nothing in the log</span>{%- endfor %}</pre></section>{% endfor %}</div>
{% if hidden %}<p>{{ hidden }} more ranks are not shown.</p>{% endif %}
{% if answer.roots | length > 1 %}<h2>Other failures in the log</h2>
<ul>{% for other in answer.roots[1:6] %}<li>{{ other.error_class }}{% if other.ranks %} on
{{ ranks_text(other.ranks) }}{% endif %}: {{ other.signature }}</li>{% endfor %}</ul>{% endif %}
{% if answer.secondary_errors %}<h2>Only consequences</h2>
<ul>{% for error in answer.secondary_errors %}<li>{{ error }}</li>{% endfor %}</ul>{% endif %}
</body></html>
"""
WORDS = {
    "root": "prints the root", "consequence": "consequence, or ended by others",
    "cut": "its traceback is cut short", "silent": "silent", "healthy": "no error", "other": "",
}  # fmt: skip


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
        look=0 < len(answer.culprit_ranks) < answer.world_size,
        silence=silence(answer) if answer.silent_ranks else "",
        numbered=sorted((c for c in columns if c.rank is not None), key=lambda c: c.rank),
        words=WORDS,
        ranks_text=ranks_text,
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
    for other in [*answer.found.secondary, *answer.found.roots[1:]]:
        for file, number, _ in other.evidence:
            marked[file, number] = "consequence"
    for file, number, _ in first.evidence if first else ():
        marked[file, number] = "root"
    return marked


def _lines(
    answer: Triage, rank: int | None, marked: dict[tuple[int, int], str]
) -> tuple[Shown, ...]:
    found: dict[tuple[int, int, str], None] = {}
    elsewhere: set[tuple[int, int]] = set()
    for event in answer.facts.events:
        if rank is None and event.rank is not None:
            elsewhere.update((event.file, number) for number, _ in event.lines)
        if event.rank == rank:
            found.update({(event.file, number, text): None for number, text in event.lines})
    if rank in answer.facts.ranks:
        found.update({line: None for line in answer.facts.ranks[rank].last})
    for line in answer.facts.all_lines():
        at = line.file, line.number
        if line.rank == rank and at in marked and at not in elsewhere:
            found[line.file, line.number, line.text] = None
    short = sorted({(f, n, t[:500]) for f, n, t in found})[:MOST_LINES]
    return tuple(Shown(n, t, marked.get((f, n), "")) for f, n, t in short if t.strip())


def _state(answer: Triage, rank: int | None) -> str:
    if rank is None:
        return "other"
    for name in ("complete", "cut", "silent", "healthy"):
        if rank in getattr(answer.count, name):
            if name == "complete":
                return "root" if answer.failed else "healthy"
            return "consequence" if name == "healthy" and _followed(answer, rank) else name
    return "other"


def _followed(answer: Triage, rank: int) -> bool:
    """Did this rank, which does not print the root, fail too or was it ended by others?"""
    caught = set(map(id, answer.found.handled))
    failed = {e.rank for e in answer.facts.events if id(e) not in caught and e.chain}
    failed |= {r for other in answer.found.secondary for r in other.ranks}
    failed |= set(answer.world.signal_of) | set(answer.world.code_of)
    return answer.failed and rank in failed
