"""What does a name, an environment variable or a comparison say of ranks?

The walk asks here what a piece of text alone tells. Where a value comes from is in
`expressions.py`.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne

from allhands.migrate import naming
from allhands.migrate.facts import UNKNOWN, Value


def source_of(node: ast.AST | None) -> str:
    """A short source of an expression: `model.module`, `rank == 0`; "" if it is long."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = source_of(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, (ast.Compare, ast.UnaryOp, ast.BoolOp)):
        return ast.unparse(node)[:80]
    return ""


def last_name(node: ast.AST | None) -> str:
    """`step` of `self.optimizer.step`; "" if it has no name."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return getattr(node, "attr", "") or getattr(node, "id", "")


def is_property(node: ast.AST) -> bool:
    """Whether a method is read like an attribute."""
    decorators = getattr(node, "decorator_list", ())
    return any(last_name(each) in ("property", "cached_property") for each in decorators)


def flipped(test: str) -> str:
    """The ranks of the `else`."""
    return {"first": "others", "others": "first"}.get(test, test)


def as_test(value: Value) -> str:
    """Which ranks go on where this value is the condition: also `if rank:` and `if not rank:`."""
    option = value.rank == "local" and "." in value.text  # args.local_rank: perhaps not given
    named = by_name(value.text).rank
    number = (value.rank in ("world", "local") or named) and not option and not value.as_text
    if value.test or not value.rank or not number:
        return value.test
    return "others"


def with_name(value: Value, name: str) -> Value:
    """What its name adds to a value of which only the makers are known."""
    if tells(value) or value.made_by(*naming.NO_RANKS):
        return value
    said = by_name(name)
    return replace(said, origins=value.origins, text=name) if tells(said) else value


def settled(name: str, operator: ast.cmpop, left: Value, right: Value) -> object:
    """Whether a comparison of the number of ranks is decided: `world_size > 1` when it is 1."""
    order = {ast.Gt: gt, ast.GtE: ge, ast.Lt: lt, ast.LtE: le, ast.Eq: eq, ast.NotEq: ne}
    numbers = isinstance(left.const, int) and isinstance(right.const, int)
    if numbers and naming.SIZE.search(name) and type(operator) in order:
        return order[type(operator)](left.const, right.const)
    return UNKNOWN


def tells(value: Value) -> bool:
    """Whether more is known of a value than which calls made it."""
    known = value.known or value.rank or value.test or value.size or value.local
    return bool(known or value.instance or value.parts)


def by_name(text: str) -> Value:
    """What a name alone says of a thing that is set nowhere in sight."""
    if naming.LOCAL_RANK.search(text):
        return Value(rank="local", text=text)
    if naming.SOME_RANK.search(text):
        return Value(rank="some", text=text)
    if naming.SIZE.search(text):
        return Value(size=True, text=text)
    if naming.FIRST_TEST.search(text):
        return Value(test="first", text=text)
    return Value(text=text)


def of_variable(name: object) -> Value:
    """The value of an environment variable."""
    if name in naming.WORLD_RANK_VARIABLES:
        return Value(rank="world", as_text=True)
    if name in naming.LOCAL_RANK_VARIABLES:
        return Value(rank="local", as_text=True)
    return Value(size=name in naming.SIZE_VARIABLES)


def compare(left: Value, operator: ast.cmpop, right: Value, node: ast.AST) -> str:
    """Which ranks does a comparison let through? "" if it is none of ranks."""
    if not left.rank and right.rank:
        left, right = right, left
        swapped = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
        operator = swapped.get(type(operator), type(operator))()
    if not left.rank:
        return ""
    if isinstance(operator, (ast.In, ast.NotIn)):
        members = [item.value for item in getattr(node, "elts", []) if hasattr(item, "value")]
        if 0 not in members:
            return "some"
        return "first" if isinstance(operator, ast.In) else "others"
    if right.const is None or right.const == -1 or isinstance(right.const, str):
        return ""
    if isinstance(operator, (ast.GtE, ast.Lt)) and right.const == 0:
        return ""  # whether there are ranks at all
    if right.const == 0:
        return "first" if isinstance(operator, (ast.Eq, ast.LtE, ast.Is)) else "others"
    if isinstance(operator, (ast.Lt, ast.LtE)) and right.size:
        return ""
    return "some"


def part_of(value: Value, target: ast.AST) -> Value:
    """One of several things that a call gave back: what its own name says, and the makers."""
    part = Value(origins=value.origins, rank=value.rank and "some")
    return with_name(part, target.id) if isinstance(target, ast.Name) else part
