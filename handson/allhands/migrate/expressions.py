"""What is known of an expression: its constant, its makers, whether it tells ranks apart?

`walk.py` goes through statements and asks here. Calls are written into the facts as they are met;
calls of the script's own functions are followed (`follow`).
"""

from __future__ import annotations

import ast
from dataclasses import replace

from allhands.migrate import naming
from allhands.migrate.facts import NOTHING, UNKNOWN, Call, Condition, Facts, Loop, Setting, Value

ENVIRONMENTS = {"os.environ", "environ"}
SAME_THING = {  # methods that give back what they were called on
    *("to", "cuda", "cpu", "half", "float", "double", "train", "eval", "to_gpu", "to_cpu"),
    *("to_device", "to_chx", "requires_grad_", "apply", "compile", "bfloat16"),
}
STARTERS = {"spawn", "start_processes", "Process", "Thread", "run", "launch", "notebook_launcher"}


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


class Expressions:
    """The state of a walk, and what it makes of expressions."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.variables: dict[str, Value] = {}  # of the module, and dotted names such as args.rank
        self.scope: dict[str, Value] = self.variables  # of the function that is followed
        self.classes: dict[str, ast.ClassDef] = {}
        self.function = ""
        self.reached = True
        self.conditions: tuple[Condition, ...] = ()
        self.loops: tuple[Loop, ...] = ()
        self.within: tuple[str, ...] = ()
        self.bare: ast.AST | None = None
        self.targets: tuple[tuple[str, ...], ast.AST | None] = ((), None)
        self._order = 0

    def follow(self, node, args, keywords, instance="", shift=0) -> Value:
        """Go through a function of the script (walk.py)."""
        raise NotImplementedError

    # Names

    def constant(self, node: ast.AST) -> Value:
        """A literal; anything else is unknown."""
        return Value(const=node.value) if isinstance(node, ast.Constant) else NOTHING

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

    def assign(self, target: ast.AST, value: Value, node: ast.AST | None) -> None:
        """Set a target: a name, an attribute, a tuple, os.environ[...]."""
        if isinstance(target, ast.Name):
            self.assign_name(target.id, replace(value, text=target.id))
        elif isinstance(target, ast.Attribute):
            key = self._key(target)
            if "." in key:
                self.assign_name(key, replace(value, text=source_of(target)))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, NOTHING, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
            same = len(parts) == len(target.elts)
            for i, inner in enumerate(target.elts):
                self.assign(inner, self.quiet(parts[i]) if same else _part(value), None)
        elif isinstance(target, ast.Subscript):
            if self.dotted(target.value) in ENVIRONMENTS:
                self._setting(target.slice, value, target.lineno)
            self.value(target.slice)

    def quiet(self, node: ast.AST) -> Value:
        """The value of an expression that was looked at already: no call is written again."""
        if isinstance(node, ast.Call):
            found = [call for call in self.facts.calls if call.line == node.lineno]
            name = last_name(node.func)
            return Value(origins=tuple(call for call in found if call.short == name)[-1:])
        return self.value(node) if isinstance(node, (ast.Name, ast.Constant)) else NOTHING

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
            elif isinstance(child, ast.comprehension):
                self.value(child.iter)
                for test in child.ifs:
                    self.value(test)
        return found

    def _of_Constant(self, node: ast.Constant) -> Value:
        return Value(const=node.value)

    def _of_Lambda(self, node: ast.Lambda) -> Value:
        return NOTHING

    def _of_Name(self, node: ast.Name) -> Value:
        found = self.scope.get(node.id) or self.variables.get(node.id)
        if found is None or found is NOTHING:
            return _by_name(node.id)
        return found

    def _of_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.value(node.value)
        text = source_of(node)
        key = f"{owner.instance}.{node.attr}" if owner.instance else text
        known = self.variables.get(key) if key else None
        if known is not None and known != NOTHING:
            return known
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
        return replace(_by_name(text), text=text) if text else NOTHING

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        if self.dotted(node.value) in ENVIRONMENTS:
            return _of_variable(self.value(node.slice).const)
        owner = self.value(node.value)
        cut = node.slice
        if isinstance(cut, ast.Slice):
            parts = [self.value(part) for part in (cut.lower, cut.upper, cut.step)]
            if any(part.rank for part in parts):
                self.facts.sharded.append((node.lineno, owner))
                return replace(owner, rank="some", text="", const=UNKNOWN)
            return replace(owner, text="", const=UNKNOWN)
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
        values = [self.value(each) for each in node.values]
        tests = [each.test for each in values if each.test]
        rank = next((each.rank for each in values if each.rank), "")
        test = tests[0] if tests and all(each == tests[0] for each in tests) else ""
        return Value(test=test or ("some" if tests else ""), rank=rank)

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        inner = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            if inner.test:
                flipped = {"first": "others", "others": "first"}.get(inner.test, inner.test)
                return Value(test=flipped)
            return Value(test="first" if inner.rank else "")
        if isinstance(node.op, ast.USub) and isinstance(inner.const, (int, float)):
            return Value(const=-inner.const)
        return replace(inner, const=UNKNOWN)

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        kept = self.conditions
        self.conditions = (*kept, Condition(node.lineno, source_of(node.test), test.test))
        first = self.value(node.body)
        flipped = {"first": "others", "others": "first"}.get(test.test, test.test)
        other = Condition(node.lineno, source_of(node.test), flipped, branch=False)
        self.conditions = (*kept, other)
        second = self.value(node.orelse)
        self.conditions = kept
        origins = (*first.origins, *second.origins)
        if last_name(node.body) == "module":  # model.module if it is wrapped, else model
            origins = first.origins
        rank = first.rank or second.rank or (test.test and "some")
        return Value(origins=origins[:8], rank=rank, size=first.size or second.size)

    def _of_Compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        others = [self.value(each) for each in node.comparators]
        if len(others) != 1:
            return Value(test="some" if left.rank or any(o.rank for o in others) else "")
        return Value(test=_compare(left, node.ops[0], others[0], node.comparators[0]))

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
        call = Call(
            *(self._order, name or source_of(func), short, node.lineno, _end(node), args),
            *(keywords, receiver, self.conditions, self.loops, self.function, self.reached),
            *(bare, self.within, targets),
        )
        self.facts.calls.append(call)
        if call.name in ("os.environ.setdefault", "os.putenv") and len(node.args) > 1:
            value = replace(args[1], const=UNKNOWN) if short == "setdefault" else args[1]
            self._setting(node.args[0], value, node.lineno)
        returned = self._enter(call, called, args, keywords)
        return self._result(call, returned)

    def _method(self, owner: Value, name: str) -> Value:
        """The method of a class of the script, or of its bases in the script."""
        seen: list[str] = [owner.instance] if owner.instance else []
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
        if called.local is not None:
            words = {key: value for key, value in keywords.items() if key != "**"}
            return self.follow(called.local, args, words, instance=called.instance)
        if call.short in STARTERS:
            target = keywords.get("target") or keywords.get("fn") or (args[0] if args else NOTHING)
            if isinstance(target.local, (ast.FunctionDef, ast.AsyncFunctionDef)):
                shift = 1 if call.short in ("spawn", "start_processes") else 0
                return self.follow(target.local, (), {}, shift=shift)
        return NOTHING

    def _result(self, call: Call, returned: Value) -> Value:
        """What a call gives back."""
        short, receiver = call.short, call.receiver or NOTHING
        text = call.name
        if returned is not NOTHING:
            return replace(returned, origins=(*returned.origins, call)[-8:], text="")
        if short in ("get_rank", "rank", "Get_rank") or text.endswith("process_index"):
            return Value(origins=(call,), rank="world")
        if short in ("local_rank", "get_local_rank", "get_node_local_rank"):
            return Value(origins=(call,), rank="local")
        if short in ("get_world_size", "Get_size") or (
            short in ("size", "local_size") and call.of(naming.HOROVOD)
        ):
            return Value(origins=(call,), size=True)
        if text in ("os.getenv", "os.environ.get", "environ.get"):
            return _of_variable(call.arg(0).const)
        if short in ("int", "str", "float", "min", "max", "abs", "format"):
            rank = next((value.rank for value in call.values if value.rank), "")
            size = any(value.size for value in call.values)
            return Value(origins=(call,), rank=rank, size=size)
        if naming.FIRST_TEST.search(short) and short.startswith(("is_", "am_", "_is")):
            return Value(origins=(call,), test="first")
        rank = "some" if any(v.rank for v in (*call.values, receiver)) else ""
        asks = any(v.made_by("create_communicator") or _is_comm(v) for v in call.values)
        ratio = short in ("tensor", "as_tensor", "array", "asarray", "item", "float") and any(
            value.ratio for value in (*call.args, receiver)
        )
        if short in SAME_THING and receiver is not NOTHING:
            return replace(receiver, origins=(*receiver.origins, call)[-8:], text=receiver.text)
        return Value(origins=(call,), rank=rank, ratio=ratio, test="perhaps" if asks else "")


def _is_comm(value: Value) -> bool:
    return bool(naming.COMMUNICATOR.search(value.text))


def _end(node: ast.Call) -> int:
    return node.end_lineno or node.lineno


def _part(value: Value) -> Value:
    """One of several things that a call gave back: its makers are the same, the rest is open."""
    return Value(origins=value.origins, rank=value.rank and "some")


def _by_name(text: str) -> Value:
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


def _of_variable(name: object) -> Value:
    """The value of an environment variable."""
    if name in naming.WORLD_RANK_VARIABLES:
        return Value(rank="world")
    if name in naming.LOCAL_RANK_VARIABLES:
        return Value(rank="local")
    return Value(size=name in naming.SIZE_VARIABLES)


def _compare(left: Value, operator: ast.cmpop, right: Value, node: ast.AST) -> str:
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
