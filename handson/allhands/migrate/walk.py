"""How is a script followed without running it? From its first line, into its own functions.

Statements are taken in order. A call of a function of the same file is followed to its body (a few
times at most, so that long scripts stay quick); functions that nobody calls are looked at alone,
and what is found there counts as not `reached`. After an `if` both branches are possible.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from allhands.migrate import naming
from allhands.migrate.expressions import Expressions
from allhands.migrate.facts import NOTHING, Condition, Facts, Loop, Value, either
from allhands.migrate.meaning import as_test, by_name, compare, flipped, last_name, source_of

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
        self._results: dict[ast.AST, Value] = {}  # what a function gave back last
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
                    facts.mentions.update(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                facts.project_imports.add(module)
                for alias in node.names:
                    facts.imports[alias.asname or alias.name] = f"{module}.{alias.name}"
                    facts.project_imports.add(f"{module}.{alias.name}")
                    facts.mentions.add(alias.name)
            elif isinstance(node, ast.Attribute):
                facts.mentions.add(node.attr)
                if isinstance(node.ctx, ast.Store):
                    facts.replaced.add(node.attr)
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
        inner = True
        while inner:  # functions in functions: what they are handed to may call them
            inner = [each for each in self.closures if each not in self._followed]
            for node in inner:
                self.follow(node, (), {})

    # Functions

    def follow(
        self,
        node: ast.AST,
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        instance: str = "",
        spawned: bool = False,
    ) -> Value:
        """Go through a function's body with these arguments; what it returns.

        spawned: it is started once for each rank, and gets its number before `args`.
        """
        if isinstance(node, ast.ClassDef):
            begin = self._method(Value(instance=node.name), "__init__").local
            if begin is not None:
                self.follow(begin, args, keywords, instance=node.name)
            return Value(instance=node.name)
        times = self._followed.get(node, 0)
        if node in self._active or times >= FOLLOW_TIMES or len(self._active) >= MOST_DEPTH:
            return self._results.get(node, NOTHING)
        self._followed[node] = times + 1
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        decorators = getattr(node, "decorator_list", ())  # a lambda has none
        static = any(last_name(each) == "staticmethod" for each in decorators)
        inner: dict[str, Value] = {}
        if instance and names and not static:
            inner[names.pop(0)] = Value(instance=instance, text="self")
        defaults = node.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=False):
            inner[name] = self.constant(default)
        for name, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            inner[name.arg] = self.constant(default) if default is not None else NOTHING
        inner |= {name: NOTHING for name in names if name not in inner}
        if spawned and names:
            index = names.pop(0)
            inner[index] = Value(rank="local", text=index)
        inner |= dict(zip(names, args, strict=False))
        inner |= {name: value for name, value in keywords.items() if name in inner}
        for name, value in inner.items():
            if isinstance(value.const, int) and value.const is not False:  # run(rank=0, ...)
                inner[name] = replace(value, rank=by_name(name).rank)
        kept = self.scope, self.function, self._left, self._returned, self.conditions
        self.conditions += tuple(self._decorated(each) for each in decorators)
        name = getattr(node, "name", "lambda")
        self.scope, self.function = inner, f"{instance}.{name}".lstrip(".")
        self.scope = {**self.closures.get(node, {}), **inner}
        self._left, self._returned = [], []
        loops = self.loops if self.reached else ()
        kept_loops, self.loops = self.loops, loops
        self._active.append(node)
        if isinstance(node, ast.Lambda):
            self._returned.append(self.value(node.body))
        else:
            self.block(node.body)
        self._active.pop()
        found = self._returned
        self.scope, self.function, self._left, self._returned, self.conditions = kept
        self.loops = kept_loops
        value = found[0] if found else NOTHING
        for each in found[1:]:
            value = either(value, each)
        self._results[node] = value
        return value

    def _decorated(self, decorator: ast.expr) -> Condition:
        """On which ranks a decorator lets its function run, if it says so."""
        name = last_name(decorator)
        if naming.ONE_RANK_ONLY.search(name):
            return Condition(decorator.lineno, f"@{name}", "first")
        local = self.variables.get(name, NOTHING).local
        if isinstance(local, FunctionNode) and local.args.args:
            wrapped = local.args.args[0].arg
            for branch in (each for each in ast.walk(local) if isinstance(each, ast.If)):
                ranks = as_test(self.value(branch.test))
                if _calls(branch.body, wrapped):
                    return Condition(branch.lineno, f"@{name}", ranks)
                if _leaves(branch.body):
                    return Condition(branch.lineno, f"@{name}", flipped(ranks))
        return Condition(decorator.lineno, f"@{name}")

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
        if self._active:
            self.closures[node] = self.scope
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
            self.assign(target, value)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.targets = (source_of(node.target),), node.value
            self.assign(node.target, self.value(node.value))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        before, added = self.value(node.target), self.value(node.value)
        if isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)) and added.size:
            self.facts.scaled = True
        mixed = either(before, added)
        self.assign(node.target, Value(rank=mixed.rank, size=mixed.size, ratio=before.ratio))

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._returned.append(self.value(node.value))

    def _If(self, node: ast.If) -> None:
        test = self.value(node.test)
        if isinstance(node.test, ast.Compare) and isinstance(test.const, bool):
            self.block(node.body if test.const else node.orelse)
            return
        ranks, text = as_test(test), ast.unparse(node.test)[:80]
        condition = Condition(node.lineno, text, ranks)
        opposite = Condition(node.lineno, text, flipped(ranks), branch=False)
        left = self._branch(node.body, condition)
        other = self._branch(node.orelse, opposite)
        if ranks and _leaves(node.body) and not _leaves(node.orelse):
            left.append(replace(opposite, leaves=True))
        elif ranks and node.orelse and _leaves(node.orelse) and not _leaves(node.body):
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
        counts = Value(origins=over.origins) if over.made_by("range", "enumerate") else NOTHING
        self.assign(node.target, counts)
        self._looped(node, over, True)

    _AsyncFor = _For

    def _While(self, node: ast.While) -> None:
        test, kept = self.value(node.test), self.conditions
        text = ast.unparse(node.test)[:80]
        self.conditions = (*kept, Condition(node.lineno, text, as_test(test)))
        self._looped(node, NOTHING, False)
        self.conditions = (*kept, *self.conditions[len(kept) + 1 :])

    def _With(self, node: ast.With) -> None:
        kept = self.within
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
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
        subject, before = self.value(node.subject), ""
        for case in node.cases:
            pattern = case.pattern
            ranks = flipped(before)
            if isinstance(pattern, ast.MatchValue):
                ranks = compare(subject, ast.Eq(), self.value(pattern.value), pattern.value)
                before = before or ranks
            text = f"case {ast.unparse(pattern)[:60]}"
            self._branch(case.body, Condition(pattern.lineno, text, ranks))


def _calls(body: list[ast.stmt], name: str) -> bool:
    """Whether a function of this name is called in these statements."""
    calls = (each for part in body for each in ast.walk(part) if isinstance(each, ast.Call))
    return any(isinstance(each.func, ast.Name) and each.func.id == name for each in calls)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch ends the work of who comes into it, without an error."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Raise):
        return last_name(last.exc) == "SystemExit"
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in ("exit", "quit", "sys.exit", "os._exit")
    return isinstance(last, (ast.Return, ast.Continue, ast.Break))
