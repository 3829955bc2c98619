"""Why is a parallel run slow? `allhands doctor --run RUN [--against ALONE]` says what it sees.

A rule looks at one run, or at a run and the one that it is compared with, and says in a finding
what it saw and what to do. "bad": this makes the run slower, or its comparison wrong; "warn": it
may. A rule that lacks its figures says nothing. What each cause costs: tests/bench/bench_bug4.py.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from allhands import config as configs
from allhands.doctor import run_figures
from allhands.doctor.finding import Finding, exit_code
from allhands.doctor.run_figures import RunFigures
from allhands.doctor.show import MARKS, grid
from allhands.trace.facts import Facts

ALL_TWICE = 1.5  # samples of all ranks / samples of the set: beyond this, they are not scattered
SMALL_BATCH = 32  # samples of a rank in a step; below it Python's share of a step is large
FIXED_COST = 0.1  # of a step of the other run: what a cut batch pays without doing more
LARGE_SHARE = 0.3  # of the time, for what is not training
SAME = 0.95  # of the time of an epoch: two runs of one program differ so much
TOO_FAST = 1.2  # times the ranks; caches alone rarely give so much
OWN_CORE = 0.9  # of the wall-clock time; waiting for other ranks keeps a core busy too
FIRST_STEPS = 3.0  # the first step, in steps' times
MAY_DIFFER = ("ranks", "epochs", "batch_size", "evaluate_every", "snapshot_every", "learning_rate")
ORDER = ("bad", "warn", "good")


@dataclass(frozen=True)
class Rule:
    """`look(run)` or, if `compares`, `look(run, alone)`: a finding, or None if it cannot tell."""

    name: str
    look: Callable[..., Finding | None]
    compares: bool = False


def diagnose(run: Path | None, against: Path | None = None) -> list[Finding]:
    """What all rules see in the folder of a run, the worst first. ValueError if it holds no run."""
    if run is None:
        raise ValueError("--against compares with a run: give --run RUN too.")
    figures = run_figures.read(run)
    other = run_figures.read(against) if against else None
    found = []
    for rule in RULES:
        if rule.compares and other is None:
            continue
        finding = rule.look(figures, other) if rule.compares else rule.look(figures)
        if finding is not None:
            found.append(finding)
    return sorted(found, key=lambda one: ORDER.index(one.status))


def data(run: RunFigures) -> Finding | None:
    """Does each sample belong to one rank?"""
    if not run.facts or run.ranks == 1:
        return None
    whole, shares = run.facts[0].n_samples, [one.n_mine for one in run.facts]
    if sum(shares) > ALL_TWICE * whole:
        return Finding(
            "data",
            "bad",
            f"{run.ranks} ranks train on {_list(shares)} samples an epoch, together "
            f"{sum(shares):,}, but the whole set has {whole:,}",
            "The data are not scattered: give each rank its share, such as order[rank::size].",
        )
    if sum(shares) < whole:
        return Finding(
            "data",
            "warn",
            f"{run.ranks} ranks train on {sum(shares):,} of the {whole:,} samples",
            "Some samples are on no rank. Do all ranks shuffle with the same seed?",
        )
    return Finding("data", "good", f"{_list(shares)} samples on {run.ranks} ranks, of {whole:,}")


def threads(run: RunFigures) -> Finding | None:
    """Are there more threads than cores?"""
    if not run.facts:
        return None
    by_host = defaultdict(list)
    for one in run.facts:
        by_host[one.host].append(one)
    host, ranks = max(by_host.items(), key=lambda item: sum(f.threads for f in item[1]))
    cores, n_threads = _cores_of(ranks), sum(one.threads for one in ranks)
    seen = f"{_n(len(ranks), 'rank')} on {_n(cores, 'core')} of {host}, {n_threads} threads in all"
    switches = [one.n_switches / run.n_steps for one in ranks if one.n_switches is not None]
    if n_threads > cores and len(ranks) > 1:
        if switches:
            seen += f"; a rank loses its core up to {max(switches):,.0f} times a step"
        if len(ranks) > cores:
            advice = "Ranks that wait keep their core busy: start at most one rank a core."
        else:
            advice = f"Set OMP_NUM_THREADS={cores // len(ranks)}, before NumPy is imported."
        return Finding("threads", "bad", seen, advice)
    return Finding("threads", "good", seen)


def _cores_of(ranks: Sequence[Facts]) -> int:
    """How many cores the ranks of one host have together; a launcher may bind each to its own."""
    bound = all(one.cpus is not None and len(one.cpus) == one.cores for one in ranks)
    if bound:
        return len({cpu for one in ranks for cpu in one.cpus})
    return max(one.cores for one in ranks)


def batch(run: RunFigures) -> Finding | None:
    """Is the batch of a rank so small that a step's fixed cost is most of it?"""
    seen = f"a rank takes {_n(run.batch_size, 'sample')} in a step of {_ms(run.step_s)}"
    if run.batch_size < SMALL_BATCH:
        advice = (
            "A step has a cost that does not depend on the batch: try a larger batch for each rank."
        )
        return Finding("batch", "warn", seen, advice)
    return Finding("batch", "good", seen)


def batch_against(run: RunFigures, alone: RunFigures) -> Finding | None:
    """Was the batch of a rank cut, without that its step became as much shorter?"""
    if run.batch_size >= alone.batch_size:
        return None
    samples, time = run.batch_size / alone.batch_size, run.step_s / alone.step_s
    seen = (
        f"a rank takes {run.batch_size} samples in a step, and {alone.batch_size} in the run that "
        f"it is compared with: {samples:.0%} of the samples in {time:.0%} of the time"
    )
    bad = time > samples + FIXED_COST
    advice = "The fixed cost of a step is not shared: keep the batch of a rank as it was."
    return Finding("cut batch", "bad" if bad else "warn", seen, advice)


def evaluation(run: RunFigures) -> Finding | None:
    """Does each rank evaluate everything, or does evaluation take much of the time?"""
    share = run.share("evaluate")
    if not share:
        return None
    seen = f"it takes {share:.0%} of the time"
    if run.facts and run.ranks > 1:
        whole, mine = run.facts[0].n_held_out, [one.n_held_out_mine for one in run.facts]
        seen = f"{_list(mine)} of {whole:,} samples on {run.ranks} ranks; " + seen
        if min(mine) == whole:
            advice = "All ranks evaluate the same: give each its share, and add up the counts."
            return Finding("evaluation", "bad", seen, advice)
        if max(mine) == whole:
            advice = "One rank evaluates, and the others wait: give each its share."
            return Finding("evaluation", "bad", seen, advice)
    if share > LARGE_SHARE:
        return Finding("evaluation", "warn", seen, "Evaluate less often, or fewer samples.")
    return Finding("evaluation", "good", seen)


def loader(run: RunFigures) -> Finding | None:
    """Does one rank load for all, or does loading take much of the time?"""
    share = run.share("batch")
    seen = f"getting batches takes {share:.0%} of the time"
    read = [one.n_read for one in run.facts if one.n_read is not None]
    if len(read) == run.ranks > 1:
        seen = f"{_list(read)} samples were read by the {run.ranks} ranks; " + seen
        if max(read) > ALL_TWICE * sum(read) / len(read):
            busiest = read.index(max(read))
            advice = f"Rank {busiest} reads for the others, which wait: let each rank read its own."
            return Finding("loader", "bad", seen, advice)
    if share > LARGE_SHARE:
        advice = "Prepare batches once, or beside the training (another process, a cache)."
        return Finding("loader", "warn", seen, advice)
    return Finding("loader", "good", seen)


def first_step(run: RunFigures) -> Finding | None:
    """Would it spoil a mean to count the first step?"""
    if len(run.times_s) < 5:
        return None
    first, n_steps = run.times_s[0] / run.step_s, len(run.times_s)
    longer = (first - 1) / n_steps
    seen = (
        f"the first step took as long as {first:.1f} others; counted in, it makes the mean of "
        f"{n_steps} steps {max(0.0, longer):.0%} longer"
    )
    if first > FIRST_STEPS:
        advice = "Leave the first steps out, and take the median."
        return Finding("first step", "warn", seen, advice)
    return Finding("first step", "good", seen)


def work(run: RunFigures, alone: RunFigures) -> Finding:
    """Have the two runs made as many epochs?"""
    made = [
        f"{one.n_steps:,} steps of {one.samples_per_step:,} samples, epochs: {one.n_epochs:.3g}"
        for one in (run, alone)
    ]
    seen = f"{made[0]}; in the other run {made[1]}"
    if not 0.95 < run.n_epochs / alone.n_epochs < 1.05:
        advice = (
            "The times of two runs compare if they have the same epochs, and not the same steps: "
            "compare samples a second, or the seconds of an epoch."
        )
        return Finding("work", "bad", seen, advice)
    return Finding("work", "good", seen)


def settings(run: RunFigures, alone: RunFigures) -> Finding | None:
    """Do the two runs differ in more than what other rules look at?"""
    if run.config is None or alone.config is None:
        return None
    told = configs.differences(alone.config, run.config)
    told = [line for line in told if line.partition(":")[0] not in MAY_DIFFER]
    if not told:
        return None
    seen = f"the runs have other settings too, from the other run to this one: {'; '.join(told)}"
    return Finding(
        "settings", "warn", seen, "Compare two runs that differ in one thing, the number of ranks."
    )


def steps(run: RunFigures, alone: RunFigures) -> Finding | None:
    """Has an epoch become as many times shorter as there are ranks?"""
    if run.ranks == alone.ranks:
        return None
    expected = alone.steps_per_epoch * alone.ranks / run.ranks
    seen = (
        f"an epoch has {run.steps_per_epoch:,.0f} steps on {_n(run.ranks, 'rank')}, and "
        f"{alone.steps_per_epoch:,.0f} on {_n(alone.ranks, 'rank')}"
    )
    if run.steps_per_epoch > 1.2 * expected:
        advice = (
            f"About {expected:,.0f} were expected. Either the data are not scattered, or the batch "
            f"of a rank was cut."
        )
        return Finding("steps", "bad", seen, advice)
    return Finding("steps", "good", seen)


def speed(run: RunFigures, alone: RunFigures) -> Finding:
    """How much faster is an epoch?"""
    gain, more = alone.epoch_s / run.epoch_s, run.ranks / alone.ranks
    clock = "CPU seconds and quiet exchanges" if run.on_cpu and alone.on_cpu else "the clock"
    seen = (
        f"an epoch takes {_ms(run.epoch_s)}, and {_ms(alone.epoch_s)} in the other run, by "
        f"{clock}: {gain:.2f} times as fast with {more:g} times the ranks"
    )
    if gain < SAME * min(1, more):
        return Finding("speed", "bad", seen, "Mend what is bad, the first one first.")
    if gain > TOO_FAST * more:
        advice = (
            "This is more than the ranks explain: other programs slowed the other run down, or the "
            "two runs do not do the same. Run both again, one after the other."
        )
        return Finding("speed", "warn", seen, advice)
    if gain < 0.7 * more:
        return Finding("speed", "warn", seen, "See what is bad, or only a warning.")
    return Finding("speed", "good", seen)


def core(run: RunFigures) -> Finding | None:
    """Had rank 0 a core for itself?"""
    if run.core_share is None:
        return None
    seen = f"rank 0 had {run.core_share:.0%} of a core in the time of the run"
    if run.core_share < OWN_CORE:
        advice = "Other programs, or too many ranks, took it: times of such a run mean little."
        return Finding("core", "warn", seen, advice)
    return Finding("core", "good", seen)


RULES = (
    Rule("speed", speed, compares=True),
    Rule("work", work, compares=True),
    Rule("settings", settings, compares=True),
    Rule("data", data),
    Rule("steps", steps, compares=True),
    Rule("threads", threads),
    Rule("loader", loader),
    Rule("evaluation", evaluation),
    Rule("cut batch", batch_against, compares=True),
    Rule("batch", batch),
    Rule("first step", first_step),
    Rule("core", core),
)


def report(findings: Sequence[Finding], as_json: bool = False) -> None:
    """Print the findings: as JSON, or for people."""
    if as_json:
        names = ("name", "status", "seen", "advice")
        told = [{name: getattr(one, name) for name in names} for one in findings]
        content = {"good": exit_code(findings) == 0, "findings": told}
        print(json.dumps(content, indent=2))
        return
    console = Console()
    table = grid()
    for finding in findings:
        mark, style = MARKS[finding.status]
        table.add_row(Text(mark, style=style), Text(finding.name), Text(_sentence(finding.seen)))
        if finding.advice:
            table.add_row("", "", Text("-> " + finding.advice, style=style))
    console.print(table)
    bad, warned = (
        [finding.name for finding in findings if finding.status == status]
        for status in ("bad", "warn")
    )
    if bad:
        console.print(Text(f"Bad: {', '.join(bad)}.", "bold red"))
    elif warned:
        console.print(Text(f"Nothing is bad. May cost time: {', '.join(warned)}.", "yellow"))
    else:
        console.print(Text("Nothing here explains a slow run.", "green"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _list(numbers: Sequence[int]) -> str:
    """`719 and 718`; `each 1,437` if all are equal."""
    if len(set(numbers)) == 1 and len(numbers) > 1:
        return f"each {numbers[0]:,}"
    if len(numbers) > 8:
        return f"{min(numbers):,} to {max(numbers):,}"
    texts = [f"{number:,}" for number in numbers]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def _n(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


def _ms(time_s: float) -> str:
    return f"{time_s:.2f} s" if time_s >= 1 else f"{1e3 * time_s:.2f} ms"


__all__ = ["RULES", "Rule", "diagnose", "exit_code", "report"]
