"""What is known of an expression: its constant, its makers, whether it tells ranks apart?

`walk.py` goes through statements and asks here. Calls are written into the facts as they are met;
calls of the script's own functions are followed (`follow`).
"""

from __future__ import annotations

import ast
from dataclasses import replace

from allhands.migrate import naming
from allhands.migrate.facts import (
    NOTHING,
    UNKNOWN,
    Call,
    Condition,
    Facts,
    Loop,
    Setting,
    Value,
    choice,
    opened,
)
from allhands.migrate.meaning import (
    as_test,
    by_name,
    compare,
    flipped,
    is_property,
    last_name,
    of_variable,
    part_of,
    settled,
    source_of,
    with_name,
)
from allhands.migrate.results import result_of

ENVIRONMENTS = {"os.environ", "environ"}
STARTERS = {"spawn", "start_processes", "Process", "Thread", "run", "launch", "notebook_launcher"}


class Expressions:
    """The state of a walk, and what it makes of expressions."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.variables: dict[str, Value] = {}  # of the module, and dotted names such as args.rank
        self.scope: dict[str, Value] = self.variables  # of the function that is followed
        self.classes: dict[str, ast.ClassDef] = {}
        self.options: dict[str, Value] = {}  # what add_argument gives by default, if of ranks
        self.closures: dict[ast.AST, dict[str, Value]] = {}  # the names around an inner function
        self.function = ""
        self.reached = True
        self.conditions: tuple[Condition, ...] = ()
        self.loops: tuple[Loop, ...] = ()
        self.within: tuple[str, ...] = ()
        self.bare: ast.AST | None = None
        self.targets: tuple[tuple[str, ...], ast.AST | None] = ((), None)
        self._order = 0

    def follow(self, node, args, keywords, instance="", spawned=False) -> Value:
        """Go through a function of the script (walk.py)."""
        raise NotImplementedError

    # Names

    def constant(self, node: ast.AST) -> Value:
        """A literal; anything else is unknown."""
        return self._of_Constant(node) if isinstance(node, ast.Constant) else NOTHING

    def dotted(self, node: ast.AST) -> str:
        """The full name of `nn.Linear`: torch.nn.Linear. "" if its root is no import."""
        if isinstance(node, ast.Name):
            return "" if node.id in self.scope else self.facts.imports.get(node.id, "")
        if isinstance(node, ast.Attribute):
            inner = self.dotted(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        return ""

    def assign_name(self, name: str, value: Value) -> None:
        """Set a name of the scope, or a dotted name such as args.rank."""
        (self.variables if "." in name else self.scope)[name] = value

    def _key(self, node: ast.Attribute) -> str:
        """The name under which an attribute is kept: that of its class, or its own text."""
        owner = self.value(node.value) if isinstance(node.value, ast.Name) else NOTHING
        return f"{owner.instance}.{node.attr}" if owner.instance else source_of(node)

    def assign(self, target: ast.AST, value: Value) -> None:
        """Set a target: a name, an attribute, a tuple, os.environ[...]."""
        if isinstance(target, ast.Name):
            self.assign_name(target.id, replace(value, text=target.id))
        elif isinstance(target, ast.Attribute):
            key = self._key(target)
            if "." in key:
                self.assign_name(key, replace(value, text=source_of(target)))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, NOTHING)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = len(value.parts) == len(target.elts)
            for i, inner in enumerate(target.elts):
                self.assign(inner, value.parts[i] if same else part_of(value, inner))
        elif isinstance(target, ast.Subscript):
            if self.dotted(target.value) in ENVIRONMENTS:
                self._setting(target.slice, value, target.lineno)
            self.value(target.slice)

    def _setting(self, key: ast.AST, value: Value, line: int) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self._order += 1
            made = Setting(self._order, line, key.value, value, self.conditions, self.reached)
            self.facts.settings.append(made)

    # Expressions

    def value(self, node: ast.AST | None) -> Value:
        """What is known of an expression; its calls are written down on the way."""
        if node is None:
            return NOTHING
        handler = getattr(self, f"_of_{type(node).__name__}", None)
        if handler is not None:
            return handler(node)
        found = NOTHING
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                inner = self.value(child)
                found = Value(rank=found.rank or inner.rank, size=found.size or inner.size)
        return found

    def _of_ListComp(self, node: ast.ListComp | ast.DictComp) -> Value:
        kept = self.conditions
        for each in node.generators:
            self.value(each.iter)
            for test in each.ifs:
                ranks = as_test(self.value(test))
                self.conditions += (Condition(node.lineno, source_of(test), ranks),)
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        values = [self.value(each) for each in made]
        self.conditions = kept
        rank = next((each.rank for each in values if each.rank), "")
        return Value(rank=rank, size=any(each.size for each in values))

    _of_SetComp = _of_GeneratorExp = _of_DictComp = _of_ListComp

    def _of_Constant(self, node: ast.Constant) -> Value:
        return Value(const=node.value, line=node.lineno)

    def _of_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        parts = tuple(self.value(each) for each in node.elts)
        rank = next((each.rank for each in parts if each.rank), "")
        size, ratio = any(each.size for each in parts), any(each.ratio for each in parts)
        return Value(rank=rank and "some", size=size, ratio=ratio, parts=parts)

    _of_List = _of_Tuple

    def _of_JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts = [self.value(each) for each in node.values]
        rank = next((each.rank for each in parts if each.rank), "")
        text = "".join(str(each.const) if each.known else "{}" for each in parts)
        known = all(each.known for each in parts)
        size = any(each.size for each in parts)
        return Value(
            rank=rank, size=size, text=text, const=text if known else UNKNOWN, as_text=True
        )

    def _of_FormattedValue(self, node: ast.FormattedValue) -> Value:
        inner = self.value(node.value)
        return inner if node.format_spec is None else opened(inner)

    def _of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.assign(node.target, value)
        return value

    def _of_Lambda(self, node: ast.Lambda) -> Value:
        self.closures[node] = self.scope
        return Value(local=node)

    def _of_Name(self, node: ast.Name) -> Value:
        found = self.scope.get(node.id) or self.variables.get(node.id) or NOTHING
        return with_name(found, node.id) if found != NOTHING else by_name(node.id)

    def _of_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.value(node.value)
        text = source_of(node)
        key = f"{owner.instance}.{node.attr}" if owner.instance else text
        known = self.variables.get(key) if key else None
        if known is not None and known != NOTHING:
            return with_name(known, text)
        method = self._method(owner, node.attr)
        if method.local is not None and is_property(method.local):
            return self.follow(method.local, (), {}, instance=owner.instance)
        if node.attr in self.options:
            return replace(self.options[node.attr], text=text)
        if node.attr == "sampler" and owner.made_by("DataLoader"):
            makers = [call for call in owner.origins if call.short == "DataLoader"]
            return makers[-1].arg(3, "sampler")
        if node.attr == "module":
            bare = tuple(each for each in owner.origins if each.short not in naming.DDP)
            return replace(owner, text=text, origins=bare)
        if node.attr in ("data", "array", "grad", "T"):
            return replace(owner, text=text)
        if owner.origins and node.attr == "rank" and owner.made_by("create_communicator"):
            return Value(rank="world", text=text)
        if naming.COMMUNICATOR.search(source_of(node.value)) and node.attr == "rank":
            return Value(rank="world", text=text)
        if node.attr in ("size", "intra_size", "inter_size") and (
            owner.made_by("create_communicator")
            or naming.COMMUNICATOR.search(source_of(node.value))
        ):
            return Value(size=True, text=text)
        if node.attr == "inter_rank":
            return Value(rank="some", text=text)
        return replace(by_name(text), text=text) if text else NOTHING

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        if self.dotted(node.value) in ENVIRONMENTS:
            return of_variable(self.value(node.slice).const)
        owner = self.value(node.value)
        cut = node.slice
        if isinstance(cut, ast.Slice):
            parts = [self.value(part) for part in (cut.lower, cut.upper, cut.step)]
            if any(part.rank for part in parts):
                self.facts.sharded.append((node.lineno, owner))
                return opened(owner, rank="some", text="")
            return opened(owner, text="")
        index = self.value(cut)
        return Value(origins=owner.origins, rank=index.rank and "some", size=owner.size)

    def _of_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        size = left.size or right.size
        if size and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)):
            self.facts.scaled = True
        rank = left.rank or right.rank
        if rank and isinstance(node.op, ast.Mod):
            rank = "local" if left.rank else rank
        elif rank:
            rank = "some"
        divides = isinstance(node.op, ast.Div)
        ratio = left.ratio or (divides and right.text in self.facts.counted)
        if divides and right.size:
            ratio = left.ratio
        return Value(origins=left.origins, rank=rank, size=size, ratio=ratio)

    def _of_BoolOp(self, node: ast.BoolOp) -> Value:
        kept, values = self.conditions, []
        for each in node.values:  # each runs only where those before it let it
            found = self.value(each)
            values.append(found)
            ranks = as_test(found) if isinstance(node.op, ast.And) else flipped(as_test(found))
            self.conditions += (Condition(node.lineno, source_of(each), ranks),)
        self.conditions = kept
        tests = [as_test(each) for each in values if as_test(each)]
        rank = next((each.rank for each in values if each.rank), "")
        test = tests[0] if tests and all(each == tests[0] for each in tests) else ""
        return Value(test=test or ("some" if tests else ""), rank=rank)

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        inner = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Value(test=flipped(as_test(inner)))
        if isinstance(node.op, ast.USub) and isinstance(inner.const, (int, float)):
            return Value(const=-inner.const)
        return opened(inner)

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        kept = self.conditions
        ranks = as_test(test)
        self.conditions = (*kept, Condition(node.lineno, source_of(node.test), ranks))
        first = self.value(node.body)
        other = Condition(node.lineno, source_of(node.test), flipped(ranks), branch=False)
        self.conditions = (*kept, other)
        second = self.value(node.orelse)
        self.conditions = kept
        origins = (*first.origins, *second.origins)
        if last_name(node.body) == "module":  # model.module if it is wrapped, else model
            origins = first.origins
        rank = first.rank or second.rank or (ranks and "some")
        size, test = first.size or second.size, first.test or second.test
        return Value(
            *(origins[:8], UNKNOWN, rank, test, size),
            options=choice(first, second),
            line=node.lineno,
        )

    def _of_Compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        others = [self.value(each) for each in node.comparators]
        if len(others) != 1:
            return Value(test="some" if left.rank or any(o.rank for o in others) else "")
        const = settled(source_of(node.left), node.ops[0], left, others[0])
        if const is not UNKNOWN:
            return Value(const=const)
        return Value(test=compare(left, node.ops[0], others[0], node.comparators[0]))

    def _of_Call(self, node: ast.Call) -> Value:
        func = node.func
        bare = self.bare is node
        targets = self.targets[0] if self.targets[1] is node else ()
        receiver, called = None, NOTHING
        name = self.dotted(func)
        if isinstance(func, ast.Attribute):
            owner = self.value(func.value)
            called = self._method(owner, func.attr)
            receiver = None if name and not owner.origins else owner
        else:
            called = self.value(func)
        args = tuple(self.value(each) for each in node.args)
        keywords = {word.arg or "**": self.value(word.value) for word in node.keywords}
        short = last_name(func)
        if name:
            short = name.rpartition(".")[2]
        self._order += 1
        end_line = node.end_lineno or node.lineno
        call = Call(
            *(self._order, name or source_of(func), short, node.lineno, end_line, args),
            *(keywords, receiver, self.conditions, self.loops, self.function, self.reached),
            *(bare, self.within, targets),
        )
        self.facts.calls.append(call)
        if call.name == "os.environ.update":
            for name, each in keywords.items():
                self._setting(ast.Constant(name), each, node.lineno)
        if call.name in ("os.environ.setdefault", "os.putenv") and len(node.args) > 1:
            value = opened(args[1]) if short == "setdefault" else args[1]
            self._setting(node.args[0], value, node.lineno)
        returned = self._enter(call, called, args, keywords)
        owner = self.function.partition(".")[0]
        return result_of(call, returned, owner if owner in self.classes else "")

    def _method(self, owner: Value, name: str) -> Value:
        """The method of a class of the script, or of its bases in the script."""
        seen: list[str] = [owner.instance] if owner.instance else []
        if owner.text == "super()":
            seen = list(self.facts.bases.get(owner.instance, ()))
        for each in seen:
            found = self.classes.get(each)
            if found is None:
                continue
            for item in found.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                    return Value(local=item, instance=owner.instance)
            seen += [base for base in self.facts.bases.get(each, ()) if base not in seen]
        return NOTHING

    def _enter(self, call: Call, called: Value, args, keywords) -> Value:
        """Follow a call into the script's own function, if it is one."""
        if call.short == "add_argument" and call.arg(0).known:
            default = keywords.get("default", NOTHING)
            if default.rank or default.size:
                name = str(call.args[-1].const).lstrip("-").replace("-", "_")
                self.options[name] = opened(default, as_text=False)
        if called.local is not None:
            words = {key: value for key, value in keywords.items() if key != "**"}
            return self.follow(called.local, args, words, instance=called.instance)
        if call.short in STARTERS:
            target = keywords.get("target") or keywords.get("fn") or (args[0] if args else NOTHING)
            if isinstance(target.local, (ast.FunctionDef, ast.AsyncFunctionDef)):
                spawned = call.short in ("spawn", "start_processes")
                given = call.arg(1, "args") if spawned else keywords.get("args", NOTHING)
                return self.follow(target.local, given.parts, {}, spawned=spawned)
        return NOTHING
