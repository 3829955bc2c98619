"""What does a PBS job ask for? Reads its `#PBS` lines and qsub's command line, as strictly as qsub.

    job = read(Path("lab1.pbs").read_text(), ["-q", "gpu", "lab1.pbs"])

An unknown option, resource or attribute is a `PbsError` with the message and the exit code of
OpenPBS's qsub. The rules are qsub's own:

- The command line wins over the header. Where an option stands twice the last one counts, but where
  a resource (`-l`) stands twice in the header, the first.
- Directives stand before the first line that is neither empty nor a comment. A comment at the end
  of a directive is an error: its words would be options.
- A name may have 230 characters; PBS before version 14 took 15.
- `-l nodes=2:ppn=3` is the old way to write `-l select=2:ncpus=3:mpiprocs=3 -l place=scatter`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from allhands.box.pbs.job import Chunk, Given, PbsJob, job
from allhands.box.pbs.words import OPTIONS, PbsError, matches

__all__ = ["Chunk", "PbsError", "PbsJob", "read", "script_of"]

Pairs = list[tuple[str, str]]
WHITE = " \t\r\v\f"
NOTHING: Mapping[str, str] = MappingProxyType({})


def read(script_text: str, argv: Sequence[str], environ: Mapping[str, str] = NOTHING) -> PbsJob:
    """The job of a script's text and of qsub's arguments, the script's name among them.

    environ: the submitter's variables, for `-v NAME`. Raises PbsError.
    """
    pairs, rest = command_line(argv)
    typed = given(pairs, first_resource_counts=False)
    header: Pairs = []
    if rest[:1] != ["--"]:
        for line in directives(script_text, typed.options.get("C", "#PBS")):
            header += directive(line)
    written = given(header, first_resource_counts=True)
    both = Given(
        {**written.options, **typed.options},
        {**written.resources, **typed.resources},
        {**written.attributes, **typed.attributes},
    )
    if rest[:1] == ["--"]:
        return job(both, None, tuple(rest[1:]), "STDIN", environ)
    script = rest[0] if rest else "-"
    name = "STDIN" if script == "-" else os.path.basename(script)
    return job(both, script, (), name, environ)


def script_of(argv: Sequence[str]) -> str | None:
    """The script's path among qsub's arguments; "-": standard input; None: a command."""
    _, rest = command_line(argv)
    return None if rest[:1] == ["--"] else rest[0] if rest else "-"


def command_line(argv: Sequence[str]) -> tuple[Pairs, list[str]]:
    """The options, and what follows them: the script, or `--` and a command."""
    try:
        pairs, rest = options(argv)
        given(pairs, first_resource_counts=False)
        if (len(rest) > 1 and rest[0] != "--") or rest == ["--"]:
            raise PbsError("", 2)  # an option after the script: only the usage is shown
    except PbsError as error:
        raise PbsError(str(error), 2, usage=True) from None
    return pairs, rest


# ---- the header ----


def directives(text: str, prefix: str = "#PBS") -> Iterator[str]:
    """What follows the prefix in each directive; a backslash at a line's end continues it.

    Only a line feed ends a line. A carriage return is white space here, as it is for qsub: it is
    the shell that stumbles over it.
    """
    lines = iter(text.split("\n"))
    for line in lines:
        found = line.strip(WHITE)
        if prefix and found.startswith(prefix):
            while line.endswith("\\"):
                line = next(lines, "")
                found = found[:-1] + line.rstrip(WHITE)
            yield found[len(prefix) :].strip(WHITE)
        elif found and found[0] != "#" and line[0] != ":":
            return


def directive(line: str) -> Pairs:
    """The options of one directive."""
    words = split(line)
    shown = f"qsub: directive error: {' '.join(words)} "
    try:
        pairs, rest = options(words)
        given(pairs, first_resource_counts=True)
    except PbsError as error:
        raise PbsError(f"{error}\n{shown}".lstrip("\n"), 1) from None
    if rest:
        raise PbsError(shown, 1)
    return pairs


def split(line: str) -> list[str]:
    """The words of a directive: quotes hold a word together, a backslash keeps a character."""
    found = re.findall(r"""((?:\\.|"[^"]*"|'[^']*'|[^\s"'\\])+|["'])""", line)
    if '"' in found or "'" in found:
        raise PbsError(f"qsub: unmatched quote in: {line}", 1)
    piece = re.compile(r"""\\(.)|"([^"]*)"|'([^']*)'|([^\s"'\\]+)""")
    return ["".join("".join(parts) for parts in piece.findall(word)) for word in found]


# ---- options ----


def options(arguments: Sequence[str]) -> tuple[Pairs, list[str]]:
    """((letter, value) of each option, the words that follow), as getopt reads: -kVALUE, -k VALUE.

    Flags may stand together: -Vz. The value of a flag is "".
    """
    pairs: Pairs = []
    words = list(arguments)
    while words and words[0].startswith("-") and words[0] != "-":
        if words[0] == "--":
            return pairs, words
        letters = words.pop(0)[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in OPTIONS:
                raise PbsError(f"qsub: invalid option -- '{letter}'", 2)
            value = ""
            if OPTIONS[letter].value is not None:
                if not letters and not words:
                    raise PbsError(f"qsub: option requires an argument -- '{letter}'", 2)
                value, letters = letters or words.pop(0), ""
            pairs.append((letter, value))
    return pairs, words


def given(pairs: Iterable[tuple[str, str]], *, first_resource_counts: bool) -> Given:
    """The options by letter, and what stands in `-l` and `-W` by name."""
    found, resources, attributes = {}, {}, {}
    for letter, value in pairs:
        if letter == "l":
            for name, amount in resource_list(value):
                if not (first_resource_counts and name in resources):
                    resources[name] = amount
        elif letter == "W":
            attributes.update(attribute_list(value))
        elif letter == "r" and not matches(OPTIONS["r"].value or "", value):
            raise PbsError("qsub: illegal -r value", 2)
        else:
            found[letter] = value
    return Given(found, resources, attributes)


def resource_list(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of "name=value,name=value"."""
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or re.search(r"\s", value):
            raise PbsError("qsub: illegal -l value", 2)
        yield name, value


def attribute_list(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of "name=value,name=value"; any other comma belongs to the value."""
    for part in re.split(r",(?=\w+=)", text.strip()):
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise PbsError("qsub: illegal -W value", 2)
        yield name.strip(), value.strip()
