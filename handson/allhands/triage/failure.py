"""What a failure is: a root or a consequence, with its ranks and its lines."""

from dataclasses import dataclass, field

from allhands.triage.blocks import Event


@dataclass
class Root:
    """A failure and the ranks that print it; `count` is the number of complete copies."""

    kind: str  # exception | signal | stall | hang | time_limit | singletons | secondary | exit
    # | cancelled | none
    error_class: str
    message: str = ""
    ranks: list[int] = field(default_factory=list)
    culprits: list[int] = field(default_factory=list)
    count: int = 0
    text: str = ""
    normalised: str = ""
    chain: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    evidence: list[tuple[int, int, str]] = field(default_factory=list)  # file, line, text
    frame: tuple[str, int, str] | None = None


@dataclass
class Found:
    """The roots (the first is the root), and what follows from them."""

    roots: list[Root]
    secondary: list[Root]
    handled: list[Event]
    cut: list[int]  # ranks whose traceback ends before its last line
