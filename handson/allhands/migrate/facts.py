"""What does a script do, in which order, and on which ranks? The table that the rules look at.

`walk.py` fills it from the syntax tree; nothing of the script runs. A `Call` is one call as it is
met when the script is followed from its first line into its own functions. Orders are numbers that
grow; lines begin at 1. What is not known is left empty, and a rule keeps silent about it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

UNKNOWN = object()  # a constant that is not known


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an expression.

    origins: the calls that may have made it. const: its constant, or UNKNOWN. rank: "" or which
    number of the process it is or holds: "world", "local", or "some" (open which). test: "" or, of
    a condition, the ranks that it lets through: "first", "others", "some", or "perhaps" (a function
    is asked that gets the communicator). size: it depends on the
    number of ranks. text: its source, if it is a name. ratio: a division by what this rank counted.
    local: the function or class of this file that it is; instance: the class that it is one of.
    parts: of a tuple, its parts. as_text: a text, such as a variable of the
    environment: a bare `if` asks whether there is any, and not which rank this is.
    options: of a choice between constants, these constants. line: where the constant, or the
    choice, is written; 0 if it is none.
    """

    origins: tuple[Call, ...] = ()
    const: object = UNKNOWN
    rank: str = ""
    test: str = ""
    size: bool = False
    text: str = ""
    ratio: bool = False
    local: ast.AST | None = None
    instance: str = ""
    parts: tuple[Value, ...] = ()
    as_text: bool = False
    options: tuple[object, ...] = ()
    line: int = field(default=0, compare=False)

    @property
    def constants(self) -> tuple[object, ...]:
        """All constants that it may be; empty if it may be something else, too."""
        return (self.const,) if self.known else self.options

    @property
    def known(self) -> bool:
        """Whether the constant is known."""
        return self.const is not UNKNOWN

    def made_by(self, *shorts: str) -> bool:
        """Whether one of these calls may have made it."""
        return any(call.short in shorts for call in self.origins)


NOTHING = Value()


def choice(first: Value, second: Value) -> tuple[object, ...]:
    """The constants of a value that is the one or the other; empty if one of them is open."""
    if not first.constants or not second.constants:
        return ()
    return tuple(dict.fromkeys((*first.constants, *second.constants)))


def opened(value: Value, **changes: object) -> Value:
    """What is left of a value when its constant does not hold any more."""
    return replace(value, const=UNKNOWN, options=(), **changes)


def either(first: Value, second: Value) -> Value:
    """What is known when it may be the one or the other."""
    alike = len(first.parts) == len(second.parts)
    same = first.known and second.known and first.const == second.const
    return replace(
        second,
        origins=tuple(dict.fromkeys((*first.origins, *second.origins)))[:8],
        const=first.const if same else UNKNOWN,
        rank=first.rank or second.rank,
        test=first.test or second.test,
        size=first.size or second.size,
        ratio=first.ratio or second.ratio,
        local=second.local or first.local,
        instance=second.instance or first.instance,
        parts=tuple(map(either, first.parts, second.parts)) if alike else (),
        as_text=first.as_text or second.as_text,
        options=() if same else choice(first, second),
        line=first.line or second.line,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a line to run. ranks: "" if it does not depend on the rank, else which."""

    line: int
    text: str
    ranks: str = ""
    leaves: bool = False  # the ranks that do not go on have left by return, break or continue
    branch: bool = True  # False: the `else`


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop around a line: what it goes over, and the names of all that is called in it."""

    line: int
    over: Value
    names: frozenset[str]
    iterates: bool  # for; False: while

    @property
    def trains(self) -> bool:
        """Whether gradients are computed in it."""
        return "backward" in self.names


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call. `short` is its last name; `name` the full one, if its root was imported."""

    order: int
    name: str
    short: str
    line: int
    end_line: int
    args: tuple[Value, ...]
    keywords: dict[str, Value]
    receiver: Value | None  # of a method: what it is called on
    conditions: tuple[Condition, ...]
    loops: tuple[Loop, ...]
    function: str  # the function of the script in which it stands; "" is the module
    reached: bool  # met by following the script; False: its function is called from elsewhere
    bare: bool  # a statement of its own: its result is thrown away
    within: tuple[str, ...]  # last names of the `with` blocks around it
    targets: tuple[str, ...] = ()

    def of(self, *roots: str) -> bool:
        """Whether it comes from one of these modules."""
        return any(self.name == root or self.name.startswith(root + ".") for root in roots)

    def arg(self, position: int, keyword: str = "") -> Value:
        """An argument by place or name; NOTHING if it is not given."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        return self.args[position] if position < len(self.args) else NOTHING

    def given(self, position: int, keyword: str) -> bool:
        """Whether the argument is given at all (or may hide in *args or **options)."""
        return keyword in self.keywords or position < len(self.args) or "**" in self.keywords

    @property
    def ranks(self) -> str:
        """ "" if all ranks come here, else which do: "first", "others", "some"."""
        return next((each.ranks for each in self.conditions if each.ranks), "")

    @property
    def expects_error(self) -> bool:
        """Whether it stands in a `with` that wants an error, as tests have it."""
        return any("raises" in name.lower() for name in self.within)

    @property
    def values(self) -> tuple[Value, ...]:
        """All arguments."""
        return (*self.args, *self.keywords.values())

    def together(self, other: Call) -> bool:
        """Whether no branch separates the two: they may both run in one go."""
        mine = {(each.line, each.text): each.branch for each in self.conditions}
        return all(
            mine.get((each.line, each.text), each.branch) == each.branch
            for each in other.conditions
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A value put into the environment: os.environ[name] = value."""

    order: int
    line: int
    name: str
    value: Value
    conditions: tuple[Condition, ...]
    reached: bool


@dataclass
class Facts:
    """All that is known of one script. `mentions`: names that stand in any file of the project."""

    path: str
    calls: list[Call] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)  # local name -> dotted name
    mentions: set[str] = field(default_factory=set)  # of this file
    project: set[str] = field(default_factory=set)  # of all files
    project_imports: set[str] = field(default_factory=set)
    reads: dict[str, int] = field(default_factory=dict)  # how often a name is read
    counted: set[str] = field(default_factory=set)  # names that are added to in loops
    replaced: set[str] = field(default_factory=set)  # attributes that are set: sys.stdout = ...
    sharded: list[tuple[int, Value]] = field(default_factory=list)  # x[rank::size]: line, x
    scaled: bool = False  # something is multiplied or divided by the number of ranks
    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the script's classes
    has_main: bool = False  # runs something when it is started
    _by_name: dict[str, list[Call]] | None = None
    _n_indexed: int = 0

    def find(self, *shorts: str, root: str = "", reached: bool = False) -> Iterator[Call]:
        """Calls by their last name, in order; with `root` only from that module."""
        if self._by_name is None or self._n_indexed != len(self.calls):
            self._index()
        found = [call for short in set(shorts) for call in self._by_name.get(short, ())]
        for call in sorted(found, key=lambda each: each.order):
            if (not root or call.of(root)) and (call.reached or not reached):
                yield call

    def _index(self) -> None:
        self._by_name, self._n_indexed = {}, len(self.calls)
        for call in self.calls:
            self._by_name.setdefault(call.short, []).append(call)

    def mentioned(self, *names: str) -> bool:
        """Whether one of the names stands anywhere in the project."""
        return not self.project.isdisjoint(names)

    def uses(self, *modules: str) -> bool:
        """Whether the project imports one of these modules."""
        return any(
            name == module or name.startswith(module + ".")
            for name in self.project_imports
            for module in modules
        )
