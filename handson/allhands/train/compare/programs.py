"""Which program does a target of `allhands compare` name, and how is it built?

A target is a preset (lab2_cpu); or a file that defines `build(comm) -> Parts`; or a file that
defines some of lab 2's edits (`shard`, `total`, ...), which are put into a small program of lab 2.
That program runs on CPUs, whatever there is: so `device_of` is never called by it, and a file that
defines nothing else is refused.
"""

import ast
import dataclasses
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from allhands import config as configs
from allhands.config import TrainConfig
from allhands.data.corpus import read_pairs

if TYPE_CHECKING:
    from allhands.train.compare.parts import Parts

# What an edit is tried with: small enough for seconds, uneven enough to show a fault.
SMALL_PAIRS = 501  # odd: two shares are not of one size
PAIRS = "pairs.tsv"
SMALL = ("n_embed=16", "n_hidden=32", "batch_size=24", "evaluate_pairs=61")


def check(target: str, settings: Sequence[str] = ()) -> None:
    """Raise ValueError, in a sentence, for what cannot be a target; nothing is run."""
    if not is_file(target):
        if target not in configs.PRESETS:
            raise ValueError(
                f"There is no preset {target!r}. Give one of {', '.join(configs.PRESETS)}, or a "
                f"file that ends in .py."
            )
        configs.override(configs.preset(target), settings)
        return
    path = Path(target)
    if not path.is_file():
        raise ValueError(f"There is no file {target}. Give a preset, or a file that ends in .py.")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise ValueError(
            f"{path.name} is not Python: {error.msg} (line {error.lineno}). Mend it first."
        ) from error
    names = defined(tree)
    if "build" not in names and not names & set(edits()):
        raise ValueError(
            f"{path.name} has no function `build`. Define build(comm), which returns Parts (see "
            f"allhands.train.compare.parts), or some of lab 2's functions: {', '.join(edits())}."
        )
    if "build" in names and settings:
        raise ValueError(
            f"--set changes a preset or lab 2's small program; {path.name} builds a program of its "
            f"own. Leave --set away, and change the file."
        )


def edits() -> tuple[str, ...]:
    """The names of lab 2's functions that can be tried in a small program."""
    from allhands.train.parallel import Edits

    names = [field.name for field in dataclasses.fields(Edits)]
    return tuple(name for name in names if name != "device_of")  # never called on CPUs


def write_small_corpus(folder: Path) -> None:
    """Write the pairs that lab 2's edits are tried with."""
    pairs = islice(read_pairs(configs.preset("lab2_cpu").train), SMALL_PAIRS)
    lines = [f"{pair.source}\t{pair.target}\n" for pair in pairs]
    (folder / PAIRS).write_text("".join(lines), encoding="utf-8")


def is_file(target: str) -> bool:
    return target.endswith(".py")


def defined(tree: ast.Module) -> set[str]:
    """The names that a module defines or imports at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


@dataclass(frozen=True)
class Builder:
    """Builds a target's program on a communicator: the world's, or that of the run alone.

    settings: `key=value` changes of a preset or of the small program. ranks: of the world.
    folder: where `write_small_corpus` has written.
    """

    target: str
    settings: tuple[str, ...]
    ranks: int
    folder: Path

    def __call__(self, comm) -> "Parts":
        """Build the program; this may communicate, so all ranks of `comm` must come here."""
        from allhands.train import parallel, parallel_parts

        if self.builds_itself:
            return self.module.build(comm)
        chosen = parallel.Edits.from_module(self.module) if self.module else parallel.RIGHT
        return parallel_parts.parts(self.fitted(self.config, comm), comm, chosen)

    def communicator(self, mpi_comm):
        """Make the communicator of ChainerMN that the program asks for, over `mpi_comm`."""
        from allhands.train import parallel

        options = {"mpi_comm": mpi_comm}
        if self.builds_itself:
            return parallel.communicator(getattr(self.module, "COMMUNICATOR", "auto"), **options)
        return parallel.communicator_of(self.config, **options)

    @property
    def module(self) -> ModuleType | None:
        return load(Path(self.target)) if is_file(self.target) else None

    @property
    def builds_itself(self) -> bool:
        return hasattr(self.module, "build")

    @property
    def config(self) -> TrainConfig:
        """What a preset, or the small program that edits are tried in, is made of."""
        if not is_file(self.target):
            return configs.override(configs.preset(self.target), self.settings)
        small = [*SMALL, f"train={self.folder / PAIRS}"]
        return configs.override(configs.preset("lab2_cpu"), [*small, *self.settings])

    def fitted(self, config: TrainConfig, comm) -> TrainConfig:
        """The run alone makes steps of all ranks' pairs, so it needs their learning rate too."""
        from allhands.train import parallel

        if comm.size == self.ranks:
            return config
        factor = parallel.rate_factor(config.rate_scaling, self.ranks)
        return dataclasses.replace(
            config,
            learning_rate=config.learning_rate * factor,
            last_learning_rate=config.last_learning_rate * factor,
            rate_scaling="none",
        )


def load(path: Path) -> ModuleType:
    """Import a file by its place, once; its folder is where its imports are looked for."""
    name = f"compared_{path.stem}_{abs(hash(str(path.resolve())))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as a module of Python.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
