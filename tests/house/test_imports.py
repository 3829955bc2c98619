"""The import rule: which package may know which, and where the heavy libraries may be imported."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import allhands

PACKAGE = Path(allhands.__file__).parent
BELOW = {
    "compat": set(),
    "labs": set(),
    "config": set(),
    "trace": {"labs", "config"},
    **{
        part: {"labs", "config", "trace"}
        for part in (
            *("data", "mgwfbp", "precision", "profile", "triage", "doctor", "launch"),
            *("box", "sites", "migrate"),
        )
    },
}
BELOW["doctor"] |= {"compat"}
BELOW["model"] = {"labs", "config", "trace", "data", "mgwfbp", "precision", "profile"}
BELOW["model"] |= {"triage", "doctor", "launch", "box", "sites", "migrate"}
BELOW["train"] = BELOW["model"] | {"model"}
BELOW["grade"] = BELOW["train"] | {"train"}
BELOW["kit"] = BELOW["grade"] | {"grade"}
BELOW["cli"] = BELOW["kit"]
HEAVY = {"chainer", "chainermn", "chainerx", "cupy", "torch", "mpi4py"}
HEAVY_ALLOWED = {"model", "train", "grade", "kit", "cli"}


def parts() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part != "__init__":
            yield part, path


def imported(tree: ast.Module, *, top_level: bool) -> Iterator[str]:
    """Dotted names of all imports; with `top_level` those that run when the module is imported."""
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_part_of_the_package_has_its_place_in_the_rule():
    assert {part for part, _ in parts()} <= set(BELOW)


def test_imports_point_one_way():
    wrong = []
    for part, path in parts():
        for name in imported(ast.parse(path.read_text()), top_level=False):
            root, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if root == "allhands" and rest and other not in BELOW[part] | {part}:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_heavy_libraries_are_imported_by_model_train_and_above_alone():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for part, path in parts()
        if part not in HEAVY_ALLOWED
        for name in imported(ast.parse(path.read_text()), top_level=True)
        if name.split(".")[0] in HEAVY
    ]
    assert wrong == []


def test_planning_data_and_traces_run_where_nothing_heavy_is_installed():
    light = [part for part, _ in parts() if part not in HEAVY_ALLOWED | {"compat"}]
    program = (
        "import sys, importlib, pkgutil, allhands\n"
        f"for name in {sorted(HEAVY)!r}: sys.modules[name] = None\n"
        f"for part in {sorted(set(light))!r}:\n"
        "    module = importlib.import_module('allhands.' + part)\n"
        "    for inner in pkgutil.iter_modules(getattr(module, '__path__', [])):\n"
        "        if inner.name not in ('generate',):\n"
        "            importlib.import_module(f'allhands.{part}.{inner.name}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_import_check_sees_a_forbidden_import():
    tree = ast.parse("import os\ndef f():\n    from allhands.train import run\n")
    assert "allhands.train.run" in list(imported(tree, top_level=False))
    assert "allhands.train.run" not in list(imported(tree, top_level=True))
