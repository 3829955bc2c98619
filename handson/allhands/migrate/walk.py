"""How is a script followed without running it? From its first line, into its own functions.

Statements are taken in order. A call of a function of the same file is followed to its body (a few
times at most, so that long scripts stay quick); functions that nobody calls are looked at alone,
and what is found there counts as not `reached`. After an `if` both branches are possible.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from allhands.migrate.expressions import Expressions, last_name, source_of
from allhands.migrate.facts import NOTHING, Condition, Facts, Loop, Value, either

FOLLOW_TIMES = 3  # how often one function is followed
MOST_DEPTH = 30
FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)


def walk(tree: ast.Module, path: str) -> Facts:
    """The facts of one parsed script."""
    walker = Walker(path)
    walker.look_around(tree)
    walker.block(tree.body)
    walker.rest()
    return walker.facts


class Walker(Expressions):
    """Statements; what expressions say is in `Expressions`."""

    def __init__(self, path: str) -> None:
        super().__init__(Facts(path))
        self._followed: dict[ast.AST, int] = {}
        self._active: list[ast.AST] = []
        self._names: dict[ast.AST, frozenset[str]] = {}
        self._methods: dict[str, list[ast.AST]] = {}
        self._left: list[Condition] = []  # who has left, for the rest of the block
        self._returned: list[Value] = []

    # What is defined where

    def look_around(self, tree: ast.Module) -> None:
        """Imports, functions, classes and names of the whole file, before it is followed."""
        facts = self.facts
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    facts.imports[alias.asname or name] = name
                    facts.project_imports.add(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                facts.project_imports.add(module)
                for alias in node.names:
                    facts.imports[alias.asname or alias.name] = f"{module}.{alias.name}"
                    facts.project_imports.add(f"{module}.{alias.name}")
                    facts.mentions.add(alias.name)
            elif isinstance(node, ast.Attribute):
                facts.mentions.add(node.attr)
            elif isinstance(node, ast.Name):
                facts.mentions.add(node.id)
                if isinstance(node.ctx, ast.Load):
                    facts.reads[node.id] = facts.reads.get(node.id, 0) + 1
            elif isinstance(node, ast.keyword) and node.arg:
                facts.mentions.add(node.arg)
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
                for item in node.body:
                    if isinstance(item, FunctionNode):
                        self._methods.setdefault(item.name, []).append(item)
                facts.bases[node.name] = tuple(last_name(base) for base in node.bases)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                facts.counted.add(node.target.id)
        for statement in tree.body:
            self._define(statement)
            if isinstance(statement, (ast.Expr, ast.If, ast.For, ast.While, ast.With)) and any(
                isinstance(node, ast.Call) for node in ast.walk(statement)
            ):
                facts.has_main = True

    def _define(self, statement: ast.AST) -> None:
        if isinstance(statement, (*FunctionNode, ast.ClassDef)):
            self.variables[statement.name] = Value(local=statement, text=statement.name)
        elif isinstance(statement, (ast.If, ast.Try)):
            for inner in (*statement.body, *statement.orelse):
                self._define(inner)

    def rest(self) -> None:
        """Functions and methods that nobody has called so far."""
        self.reached, self.conditions, self.loops, self.within = False, (), (), ()
        everything = [v.local for v in list(self.variables.values()) if v.local is not None]
        for node in (*everything, *self.classes.values()):
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, FunctionNode) and method not in self._followed:
                        self.follow(method, (), {}, instance=node.name)
            elif node not in self._followed:
                self.follow(node, (), {})

    # Functions

    def follow(
        self,
        node: ast.AST,
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        instance: str = "",
        shift: int = 0,
    ) -> Value:
        """Go through a function's body with these arguments; what it returns."""
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, FunctionNode) and method.name == "__init__":
                    self.follow(method, args, keywords, instance=node.name)
            return Value(instance=node.name)
        times = self._followed.get(node, 0)
        if node in self._active or times >= FOLLOW_TIMES or len(self._active) >= MOST_DEPTH:
            return NOTHING
        self._followed[node] = times + 1
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        static = any(last_name(each) == "staticmethod" for each in node.decorator_list)
        inner: dict[str, Value] = {}
        if instance and names and not static:
            inner[names.pop(0)] = Value(instance=instance, text="self")
        defaults = node.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=False):
            inner[name] = self.constant(default)
        for name, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            inner[name.arg] = self.constant(default) if default is not None else NOTHING
        inner |= {name: NOTHING for name in names if name not in inner}
        inner |= dict(zip(names[shift:], args, strict=False))
        inner |= {name: value for name, value in keywords.items() if name in inner}
        kept = self.scope, self.function, self._left, self._returned, self.conditions
        self.scope, self.function = inner, f"{instance}.{node.name}".lstrip(".")
        self._left, self._returned = [], []
        loops = self.loops if self.reached else ()
        kept_loops, self.loops = self.loops, loops
        self._active.append(node)
        self.block(node.body)
        self._active.pop()
        found = self._returned
        self.scope, self.function, self._left, self._returned, self.conditions = kept
        self.loops = kept_loops
        value = found[0] if found else NOTHING
        for each in found[1:]:
            value = either(value, each)
        return value

    def called_in(self, node: ast.AST) -> frozenset[str]:
        """Last names of all calls in a piece of the script, and in its functions called there."""
        if node in self._names:
            return self._names[node]
        self._names[node] = frozenset()  # a function that calls itself
        found: set[str] = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                name = last_name(each.func)
                found.add(name)
                local = self.variables.get(name, NOTHING).local
                if local is None and isinstance(each.func, ast.Attribute):
                    local = self.any_method(name)
                if isinstance(local, FunctionNode):
                    found |= self.called_in(local)
        self._names[node] = frozenset(found)
        return self._names[node]

    def any_method(self, name: str) -> ast.AST | None:
        """The method of this name, if exactly one class of the file has it."""
        found = self._methods.get(name, ())
        return found[0] if len(found) == 1 else None

    # Statements

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Statements in their order; what has left stays gone for the rest of them."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """One statement."""
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is not None:
            handler(node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
            elif isinstance(child, ast.stmt):
                self.statement(child)

    def _FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.value(decorator)
        self.assign_name(node.name, Value(local=node, text=node.name))

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> None:
        self.assign_name(node.name, Value(local=node, text=node.name))

    def _Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.bare = node.value
        self.value(node.value)

    def _Assign(self, node: ast.Assign) -> None:
        self.targets = tuple(source_of(target) for target in node.targets), node.value
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value, node.value)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.targets = (source_of(node.target),), node.value
            self.assign(node.target, self.value(node.value), node.value)

    def _AugAssign(self, node: ast.AugAssign) -> None:
        before, added = self.value(node.target), self.value(node.value)
        if isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)) and added.size:
            self.facts.scaled = True
        mixed = either(before, added)
        self.assign(node.target, Value(rank=mixed.rank, size=mixed.size, ratio=before.ratio), None)

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._returned.append(self.value(node.value))

    def _If(self, node: ast.If) -> None:
        test = self.value(node.test)
        text = source_of(node.test)
        flipped = {"first": "others", "others": "first"}.get(test.test, test.test)
        condition = Condition(node.lineno, text, test.test)
        opposite = Condition(node.lineno, text, flipped, branch=False)
        left = self._branch(node.body, condition)
        other = self._branch(node.orelse, opposite)
        if test.test and _leaves(node.body) and not _leaves(node.orelse):
            left.append(replace(opposite, leaves=True))
        elif test.test and node.orelse and _leaves(node.orelse) and not _leaves(node.body):
            left.append(replace(condition, leaves=True))
        gone = [*left, *other]
        self._left += gone
        self.conditions += tuple(gone)

    def _branch(self, body: list[ast.stmt], condition: Condition) -> list[Condition]:
        """Go through a branch; names set in it may or may not be set. Who has left in it."""
        if not body:
            return []
        kept, scope = self.conditions, dict(self.scope)
        known = dict(self.variables)
        n_left = len(self._left)
        self.conditions = (*kept, condition)
        self.block(body)
        self.conditions = kept
        for now, before in ((self.scope, scope), (self.variables, known)):
            for name, value in before.items():
                if now.get(name) is not value:
                    now[name] = either(value, now[name])
        gone, self._left = self._left[n_left:], self._left[:n_left]
        return gone

    def _looped(self, node: ast.For | ast.While, over: Value, iterates: bool) -> None:
        kept_loops, kept = self.loops, self.conditions
        n_left = len(self._left)
        loop = Loop(node.lineno, over, self.called_in(node), iterates)
        self.loops = (*kept_loops, loop)
        self.block(node.body)
        self.loops, self.conditions = kept_loops, kept
        returns = any(isinstance(each, ast.Return) for each in ast.walk(node))
        gone = self._left[n_left:] if returns else []  # break and continue end here
        self._left = [*self._left[:n_left], *gone]
        self.conditions += tuple(gone)
        self.block(node.orelse)

    def _For(self, node: ast.For) -> None:
        over = self.value(node.iter)
        self.assign(node.target, NOTHING, None)
        self._looped(node, over, True)

    _AsyncFor = _For

    def _While(self, node: ast.While) -> None:
        self.value(node.test)
        self._looped(node, NOTHING, False)

    def _With(self, node: ast.With) -> None:
        kept = self.within
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, None)
            expr = item.context_expr
            name = last_name(expr.func if isinstance(expr, ast.Call) else expr)
            self.within = (*self.within, name)
        self.block(node.body)
        self.within = kept

    _AsyncWith = _With

    def _Try(self, node: ast.Try) -> None:
        self.block(node.body)
        for handler in node.handlers:
            self._branch(handler.body, Condition(handler.lineno, "except"))
        self.block(node.orelse)
        self.block(node.finalbody)

    _TryStar = _Try

    def _Match(self, node: ast.Match) -> None:
        self.value(node.subject)
        for case in node.cases:
            self._branch(case.body, Condition(case.pattern.lineno, "case"))


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch ends the work of who comes into it, without an error."""
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Continue, ast.Break))
