"""Who speaks when? The workshop's timetables, from labs.toml's minutes and slides/timetable.toml.

    python -m allhands.kit.timetable           # write slides/timetable.md
    python -m allhands.kit.timetable --check   # exit 1 if it is out of date

timetable.toml says for each plan which labs it holds, in which order, and who speaks; the minutes
of a lab are labs.toml's, those of a talk are `[talk]`'s. Times follow one after the other from
`starts`. An item of a day is one of:

    {talk = "opening", who = "lead"}                    a deck
    {lab = "lab1_seq2seq", who = "lead"}                its deck, and then the lab itself
    {choose = ["lab3_mixedprec", "lab4_mgwfbp"]}        one of them; the longest sets the time
    {pause = "Lunch", minutes = 60}
    {what = "Results of the groups", minutes = 30, who = "groups"}

Times are minutes since midnight.
"""

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from allhands.kit import deck
from allhands.kit.table import written
from allhands.labs import COURSE, Lab

TIMETABLE = deck.SLIDES / "timetable.toml"
PAGE = deck.SLIDES / "timetable.md"


@dataclass(frozen=True)
class Row:
    """One line of a timetable. `stems` are the labs that it belongs to."""

    start_min: int
    end_min: int
    what: str
    who: str
    stems: tuple[str, ...] = ()
    is_pause: bool = False


@dataclass(frozen=True)
class Plan:
    """A workshop: rows for each of its days."""

    name: str
    about: str
    days: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Timetable:
    """All plans, and the minutes that each deck's talk may take."""

    talk_min: dict[str, int]
    plans: tuple[Plan, ...]

    def plan(self, name: str) -> Plan:
        for plan in self.plans:
            if plan.name == name:
                return plan
        known = ", ".join(repr(plan.name) for plan in self.plans)
        raise ValueError(f"There is no plan {name!r} in the timetable. There are: {known}.")


def load(path: Path = TIMETABLE, labs: dict[str, Lab] | None = None) -> Timetable:
    """Read timetable.toml. Raises ValueError with one sentence: an unknown lab, talk, person or
    key, a day that does not fit, a lab that comes before one that it needs in the same plan."""
    labs = COURSE.labs() if labs is None else labs
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    plans = []
    try:
        talks, people = document["talk"], document["people"]
        for table in document["plan"]:
            reader = _Reader(table["name"], labs, talks, people)
            days = tuple(reader.day(number, day) for number, day in enumerate(table["day"], 1))
            plans.append(Plan(table["name"], table["about"], days))
    except KeyError as error:
        raise ValueError(
            f"{path} lacks the key {error}: allhands/kit/timetable.py says where it belongs."
        ) from error
    return Timetable(talks, tuple(plans))


@dataclass
class _Reader:
    plan: str
    labs: dict[str, Lab]
    talks: dict[str, int]
    people: dict[str, str]
    done: list[str] = field(default_factory=list)

    def day(self, number: int, table: dict) -> tuple[Row, ...]:
        now, rows = _minutes(table["starts"]), []
        for item in table["item"]:
            for what, minutes, who, stems, pause in self.pieces(item):
                rows.append(Row(now, now + minutes, what, who, stems, pause))
                now += minutes
        if now > _minutes(table["ends"]):
            over = now - _minutes(table["ends"])
            raise ValueError(
                f"Day {number} of {self.plan!r} ends {over} min after {table['ends']}: "
                "take something out of timetable.toml, or let the day end later."
            )
        return tuple(rows)

    def pieces(self, item: dict):
        who = self.person(item["who"]) if "who" in item else ""
        match item:
            case {"talk": name}:
                yield f"Talk: `{name}`", self.talk(name), who, (), False
            case {"lab": stem}:
                yield from self.work([stem], who)
            case {"choose": stems}:
                yield from self.work(stems, who)
            case {"pause": what, "minutes": minutes}:
                yield what, minutes, "", (), True
            case {"what": what, "minutes": minutes}:
                yield what, minutes, who, (), False
            case _:
                raise ValueError(
                    f"The item {item} of {self.plan!r} is no talk, lab, choose, pause or what; "
                    "pause and what need minutes."
                )

    def work(self, stems: list[str], who: str):
        for stem in stems:
            if stem not in self.labs:
                raise ValueError(f"{self.plan!r} holds the unknown lab {stem!r}.")
        labs = [self.labs[stem] for stem in stems]
        for lab in labs:
            if missing := [need for need in lab.needs if need not in self.done]:
                raise ValueError(
                    f"{self.plan!r} holds {lab.stem} before {', '.join(missing)}, which it needs."
                )
        self.done += stems
        talk_min = max(self.talk(stem) for stem in stems)
        decks = " or ".join(f"`{stem}`" for stem in stems)
        yield f"Talk: {decks}", talk_min, who, tuple(stems), False
        titles = " or ".join(lab.title for lab in labs)
        minutes = max(lab.minutes for lab in labs)
        yield f"Lab: {titles}", minutes, self.person("mentors"), tuple(stems), False

    def talk(self, name: str) -> int:
        if name not in self.talks:
            raise ValueError(f"The talk {name!r} has no minutes: give it some under [talk].")
        return self.talks[name]

    def person(self, role: str) -> str:
        if role not in self.people:
            raise ValueError(f"Nobody is {role!r}: give this role a name under [people].")
        return self.people[role]


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return 60 * int(hours) + int(minutes)


def clock(minutes: int) -> str:
    """09:05 for 545."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def day_table(rows: tuple[Row, ...]) -> str:
    """One day as a Markdown table: when, how long, what, who."""
    lines = ["| | min | | who |", "|---|---:|---|---|"]
    for row in rows:
        what = f"*{row.what}*" if row.is_pause else row.what
        length = row.end_min - row.start_min
        lines.append(f"| {clock(row.start_min)} | {length} | {what} | {row.who} |")
    lines.append(f"| {clock(rows[-1].end_min)} | | *End* | |")
    return "\n".join(lines)


def labs_table(labs: dict[str, Lab] | None = None) -> str:
    """The labs as a Markdown table: stem, title, minutes, points."""
    labs = COURSE.labs() if labs is None else labs
    lines = ["| lab | title | minutes | points |", "|---|---|---:|---:|"]
    for lab in labs.values():
        lines.append(f"| `{lab.stem}` | {lab.title} | {lab.minutes} | {lab.points:g} |")
    return "\n".join(lines)


def table(words: str) -> str:
    """What the marker line `<!-- table: WORDS -->` shows: `labs`, or `two days, day 1`."""
    if words == "labs":
        return labs_table()
    found = re.fullmatch(r"(.+?), day (\d+)", words)
    if found is None:
        raise ValueError(f"There is no table {words!r}: write `labs`, or `two days, day 1`.")
    days, number = load().plan(found[1]).days, int(found[2])
    if not 1 <= number <= len(days):
        raise ValueError(f"The plan {found[1]!r} has {len(days)} days, and not a day {number}.")
    return day_table(days[number - 1])


def page(timetable: Timetable) -> str:
    """slides/timetable.md: every plan, with links to decks and notebooks."""
    lines = [
        "<!-- Written by `make slides` from timetable.toml and labs.toml: change those. -->",
        "# Timetables",
        "",
        "Minutes of a lab come from `handson/labs.toml`; plans, talks, pauses and names are in",
        "[`timetable.toml`](timetable.toml). Change them and run `make slides`.",
    ]
    for plan in timetable.plans:
        lines += ["", f"## {plan.name.capitalize()}", "", plan.about]
        for number, rows in enumerate(plan.days, 1):
            if len(plan.days) > 1:
                lines += ["", f"### Day {number}"]
            lines += ["", day_table(rows)]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.timetable", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is out of date")
    asked = parser.parse_args(arguments)
    try:
        wanted = page(load())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return written(PAGE, wanted, asked.check, f"{PAGE} is out of date: run `make slides`.")


if __name__ == "__main__":
    raise SystemExit(main())
