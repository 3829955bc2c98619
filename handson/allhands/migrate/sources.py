"""Which Python code lies in a file, a notebook or a folder, and where does each line stand?

A notebook's code cells are put together; a place in it is `cell 3:2`, line 2 of its third code
cell. Lines of IPython (%magic, !command) are left out. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {
    *(".venv", "venv", "env", "build", "dist", "node_modules", "__pycache__", "site-packages"),
    *(".git", ".tox", ".nox", ".eggs", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache"),
}
MOST_BYTES = 8_000_000
SILENCED = re.compile(r"#\s*allhands:\s*ok\b[ :]*([\w\-, ]*)")


class UnreadableScript(ValueError):
    """A file is no script that can be read; the text says where and why."""


@dataclass(frozen=True)
class Script:
    """The code of one file. `places[i]` is where line i + 1 stands: "12" or "cell 3:2"."""

    path: Path
    lines: tuple[str, ...]
    places: tuple[str, ...]
    tree: ast.Module

    def line(self, number: int) -> str:
        """The text of a line, from 1 on; "" if there is none."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def place(self, number: int) -> str:
        """Where a line stands."""
        return self.places[number - 1] if 0 < number <= len(self.places) else str(number)

    def silences(self, first: int, last: int, rule_id: str) -> bool:
        """Whether `# allhands: ok rule-id` stands on these lines, or alone on the line above."""
        above = self.line(first - 1)
        texts = [self.line(i) for i in range(first, last + 1)]
        texts += [above] if above.startswith("#") else []
        for text in texts:
            found = SILENCED.search(text)
            if found and rule_id in found[1].replace(",", " ").split():
                return True
        return False


def paths_in(target: Path) -> list[Path]:
    """The scripts at a path: itself, or all below a folder but environments and built things."""
    if not target.exists():
        raise UnreadableScript(f"There is no file or folder {target}. Give a script (.py, .ipynb).")
    if not target.is_dir():
        return [target]
    found = [
        path
        for pattern in ("*.py", "*.ipynb")
        for path in target.rglob(pattern)
        if path.is_file()
        and not SKIPPED.intersection(path.relative_to(target).parts)
        and not any((folder / "pyvenv.cfg").exists() for folder in path.parents if folder != target)
    ]
    if not found:
        raise UnreadableScript(f"The folder {target} holds no .py and no .ipynb file.")
    return sorted(found)


def read(path: Path) -> Script:
    """Read and parse one file. UnreadableScript, a sentence, for what is no Python of today."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UnreadableScript(
                f"{path} is larger than 8 MB: it is no script that people wrote."
            )
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableScript(f"{path} cannot be read ({error.strerror}).") from error
    if path.suffix == ".ipynb":
        return _notebook(path, data)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise UnreadableScript(
            f"{path} is not text in the encoding that it declares ({error}). Save it as UTF-8."
        ) from error
    text = text.lstrip("\ufeff")
    lines = tuple(re.split(r"\r\n|\r|\n", text))
    tree = parse(text, str(path))
    return Script(path, lines, tuple(str(i + 1) for i in range(len(lines))), tree)


def parse(text: str, name: str) -> ast.Module:
    """The syntax tree; UnreadableScript for what is not Python 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        said = f"{error.msg}, line {error.lineno}" if error.lineno else f"{error.msg}"
        raise UnreadableScript(
            f"{name} is not Python that this version can read ({said}). Mend the syntax first; "
            f"for Python 2, run 2to3."
        ) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise UnreadableScript(f"{name} cannot be read as Python ({error}).") from error


def _notebook(path: Path, data: bytes) -> Script:
    try:
        notebook = json.loads(data)
        cells, said = notebook["cells"], notebook.get("metadata", {})
        language = said.get("language_info", {}).get("name") or "python"
        codes = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableScript(
            f"{path} is no notebook of today's format (nbformat 4). Open and save it in Jupyter."
        ) from error
    if "python" not in language.lower():
        raise UnreadableScript(f"{path} is a notebook in {language}; this check reads Python.")
    lines: list[str] = []
    places: list[str] = []
    for number, code in enumerate(codes, start=1):
        for i, line in enumerate(_python_of(code), start=1):
            lines.append(line)
            places.append(f"cell {number}:{i}")
    tree = parse("\n".join(lines), str(path))
    return Script(path, tuple(lines), tuple(places), tree)


def _python_of(code: str) -> list[str]:
    """A cell's lines, IPython's own ones replaced; all blank if the cell is no Python."""
    lines = code.split("\n")
    if code.lstrip().startswith("%%") and not code.lstrip().startswith(("%%time", "%%capture")):
        return [""] * len(lines)
    kept = [
        re.match(r"\s*", line)[0] + "pass" if re.match(r"\s*(?:[%!]|\?|\w+\?$)", line) else line
        for line in lines
    ]
    try:
        parse("\n".join(kept), "cell")
    except UnreadableScript:
        return [""] * len(lines)
    return kept
