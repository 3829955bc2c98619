"""Conditions on ranks that rules name, and the ways to find the ranks to look at."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from allhands.triage.failure import Found, Root
from allhands.triage.gather import Facts
from allhands.triage.marks import numbers
from allhands.triage.world import World


@dataclass(frozen=True)
class Case:
    """What conditions look at."""

    facts: Facts
    world: World
    found: Found
    root: Root
    silent: tuple[int, ...]


def few(case: Case) -> bool:
    return 0 < len(case.root.ranks) < case.world.size


def memory_of_others(case: Case) -> bool:
    return bool(_memory(case))


def _memory(case: Case) -> list[int]:
    """Ranks whose processes hold memory on the GPU that overflowed."""
    pids = [int(p) for p in re.findall(r"Process (\d{1,9}) has [\d.]+ \w+ memory", case.root.text)]
    found = {case.world.rank_of_pid[p] for p in pids if p in case.world.rank_of_pid}
    others = sorted(found - set(case.root.ranks))
    if pids and not others and case.root.ranks == [0] and len(set(pids)) >= case.world.size - 1 > 0:
        return list(range(1, case.world.size))
    return others


def gpus_used(case: Case) -> bool:
    gpu = re.compile(r"using gpus?|cuda|cupy|hierarchical|pure_nccl|\bgpu", re.IGNORECASE)
    invalid = "Invalid permissions"
    return any(gpu.search(line.text) or invalid in line.text for line in case.facts.all_lines())


def only_rank0(case: Case) -> bool:
    return case.root.culprits == [0]


LEFT_THE_LOOP = re.compile(
    r"finish|done|complete|end of (?:epoch|data)|no more|StopIteration|exhaust", re.IGNORECASE
)


def named_rank0(case: Case) -> bool:
    return named(case) == [0]


def uneven(case: Case) -> bool:
    """Did a culprit come to its end with fewer steps than the others?"""
    seen = case.facts.ranks
    odd = [seen[r].progress.of for r in case.root.culprits if r in seen and seen[r].progress.of]
    rest = [s.progress.of for r, s in seen.items() if r not in case.root.culprits if s.progress.of]
    if odd and rest and min(odd) < max(rest):
        return True
    said = [text for r in case.root.culprits if r in seen for _, _, text in seen[r].last]
    ends = re.compile(
        r"finish|done|complete|end of (?:epoch|data)|no more|StopIteration|exhaust", re.I
    )
    return any(ends.search(text) for text in said[-4:])


def waited_for_the_dead(case: Case) -> bool:
    """Did the job go on after the exception until somebody ended it from outside?"""
    ended = [n for n in case.facts.notes if n.kind in {"time_limit", "cancelled"}]
    if not ended or not 0 < len(case.root.ranks) < case.world.size:
        return False
    kinds = {n.kind for n in case.facts.notes if n.number < ended[0].number}
    return not kinds & {"abort", "sigterm", "first_exit", "mpich_abort", "task_exit", "step_abort"}


LOOPBACK = re.compile(r"^(?:docker\d*|lo\d*|virbr\d*|veth\w*|br-\w+|cni\d*|podman\d*)$")


def odd_network(case: Case) -> bool:
    return bool(_odd_network(case))


def _odd_network(case: Case) -> list[int]:
    """Ranks whose NCCL chose another interface than most."""
    nets: dict[int, str] = {}
    unknown: list[str] = []
    for note in case.facts.notes:
        if note.kind != "bootstrap":
            continue
        pid = re.search(r"[\w.-]+:(\d+):\d+ \[", note.text)
        rank = note.rank
        if rank is None and pid:
            rank = case.world.rank_of_pid.get(int(pid[1]))
        if rank is None:
            unknown.append(note.about["net"])
        else:
            nets[rank] = note.about["net"]
    bad = sorted(r for r, net in nets.items() if LOOPBACK.match(net))
    if bad and len(bad) < max(len(nets), 2):
        return bad
    counts = Counter(nets.values()).most_common()
    if len(counts) > 1 and counts[0][1] > counts[1][1]:
        return sorted(r for r, net in nets.items() if net != counts[0][0])
    if len(counts) > 1 or len({*unknown}) > 1 or any(LOOPBACK.match(n) for n in unknown):
        return list(case.root.ranks)
    return []


CONDITIONS: dict[str, Callable[[Case], bool]] = {
    "few": few,
    "memory_of_others": memory_of_others,
    "gpus_used": gpus_used,
    "only_rank0": only_rank0,
    "named_rank0": named_rank0,
    "uneven": uneven,
    "waited_for_the_dead": waited_for_the_dead,
    "odd_network": odd_network,
}


def printers(case: Case) -> list[int]:
    return case.root.culprits


def named(case: Case) -> list[int]:
    """Ranks that the message names as missing or different, without its writers."""
    text = case.root.text
    found = [
        r for m in re.finditer(r"[Rr]anks? ([\d, ]+) failed to pass", text) for r in numbers(m[1])
    ]
    for match in re.finditer(r"while .{0,400}? at rank (\d{1,5})|from rank (\d{1,5})", text):
        found.append(int(match[1] or match[2]))
    found += [int(m) for m in re.findall(r"retrieving ncclUniqueId from \[(\d{1,5})\]", text)]
    found = sorted({r for r in found if r < max(case.world.size, 1)})
    return found or printers(case)


COLLECTIVE = re.compile(
    r"Rank (?P<rank>\d{1,5}) is running collective: \w+\((?:SequenceNumber=(?P<seq>\d+), )?"
    r"OpType=(?P<op>\w+)(?:, TensorShape=(?P<shape>\[[^\]]*\]), TensorDtypes=(?P<dtype>\w+))?"
)


def minority(case: Case) -> list[int]:
    """The ranks that run another collective than most, by the ranks' own messages."""
    text = case.root.text
    calls = {int(m["rank"]): m for m in COLLECTIVE.finditer(text)}
    votes = {rank: f"{m['op']} {m['shape']} {m['dtype']}" for rank, m in calls.items()}
    if len(set(votes.values())) == 1:
        votes = {rank: str(m["seq"]) for rank, m in calls.items()}
    sent = re.findall(r"[Oo]ne rank (?:sent|had) .*? rank (\d{1,5}) (?:sent|had)", text)
    odd = _odd(votes)
    return odd or sorted({int(r) for r in sent}) or named(case)


def named_or_minority(case: Case) -> list[int]:
    """Who differs: by name, or by the sizes that each rank says it has."""
    text = case.root.text
    if re.search(r"at rank \d+ while", text):
        return named(case)
    votes: dict[int, str] = {}
    for match in re.finditer(
        r"\[(\d{1,5})\]: params\[\d+\] in this process with (?:sizes|strides) (\[[^\]]*\])", text
    ):
        votes[int(match[1])] = match[2]
    counted = re.findall(
        r"[Rr]ank (\d{1,5}) has (\d+) params?, while rank (\d{1,5}) has inconsistent (\d+)", text
    )
    for one, size, other, other_size in counted:
        votes[int(one)], votes[int(other)] = size, other_size
    if not counted and len(votes) > 1 and len(votes) == case.world.size - 1:
        return [0] if len(set(votes.values())) == 1 else printers(case)
    return _odd(votes) or printers(case)


def _odd(votes: dict[int, str]) -> list[int]:
    counts = Counter(votes.values()).most_common()
    if len(counts) < 2 or counts[0][1] == counts[1][1]:
        return []
    return sorted(r for r, vote in votes.items() if vote != counts[0][0])


def none_if_agent(case: Case) -> list[int]:
    return case.root.culprits


def silent_or_printers(case: Case) -> list[int]:
    return list(case.silent) if 0 < len(case.silent) < case.world.size else printers(case)


CULPRITS: dict[str, Callable[[Case], list[int]]] = {
    "printers": printers,
    "named": named,
    "minority": minority,
    "named_or_minority": named_or_minority,
    "memory": _memory,
    "odd_network": _odd_network,
    "none_if_agent": none_if_agent,
    "silent_or_printers": silent_or_printers,
}
