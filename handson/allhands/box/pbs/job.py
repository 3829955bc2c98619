"""What is a PBS job, and which values would its server refuse?

`job` makes a `PbsJob` of the words that `header.read` found, or raises `PbsError` with the
message of OpenPBS.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from allhands.box.pbs import words
from allhands.box.pbs.words import PbsError, matches


@dataclass(frozen=True)
class Chunk:
    """`count` equal parts of the select: cores, ranks, threads a rank (None: not said), GPUs."""

    count: int = 1
    ncpus: int = 1
    mpiprocs: int = 1
    ompthreads: int | None = None
    ngpus: int = 0
    mem: str | None = None
    host: str | None = None

    @property
    def threads(self) -> int:
        """What PBS puts into OMP_NUM_THREADS and NCPUS: ompthreads, else all cores."""
        return self.ompthreads or self.ncpus


@dataclass(frozen=True)
class PbsJob:
    """What qsub was asked for. None: not said.

    script: the file, "-" for standard input, None for a command; command: words after `--`.
    accounts: (option, value) as they were given, e.g. (("-P", "gr01"),).
    dependencies: (kind, job ids). variables: of `-v`; all_variables: `-V`.
    """

    name: str
    script: str | None
    command: tuple[str, ...] = ()
    queue: str | None = None
    chunks: tuple[Chunk, ...] = (Chunk(),)
    place: str | None = None
    walltime_s: int | None = None
    join: str = "n"
    output: str | None = None
    error: str | None = None
    keep: str = "n"
    array: str | None = None
    dependencies: tuple[tuple[str, tuple[str, ...]], ...] = ()
    accounts: tuple[tuple[str, str], ...] = ()
    rerunable: bool = True
    hold: bool = False
    block: bool = False
    silent: bool = False
    begin: str | None = None
    shell: str | None = None
    umask: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    all_variables: bool = False

    @property
    def account(self) -> str | None:
        """The value of the account, whichever option gave it."""
        return self.accounts[0][1] if self.accounts else None


@dataclass(frozen=True)
class Given:
    """Words as they were given: options (value "" if it takes none), `-l` and `-W` by name."""

    options: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


def job(
    given: Given,
    script: str | None,
    command: tuple[str, ...],
    default_name: str,
    environ: Mapping[str, str],
) -> PbsJob:
    """The job, if every value is one that PBS would take and that the stand-in can play."""
    options, attributes = given.options, given.attributes
    check(given)
    array = options.get("J")
    if array and options.get("r") == "n":
        raise PbsError("qsub:  cannot submit non-rerunable Array Job", 2)
    if array and "max_run_subjobs" in attributes and "%" not in array:
        array += "%" + attributes["max_run_subjobs"]
    chunks, place = shape(given.resources)
    accounts = {
        "-W group_list": attributes.get("group_list", "").partition(",")[0],
        "-P": options.get("P"),
        "-A": options.get("A"),
    }
    limit = given.resources.get("walltime")
    return PbsJob(
        name=options.get("N", default_name),
        script=script,
        command=command,
        queue=options.get("q"),
        chunks=chunks,
        place=place,
        walltime_s=None if limit is None else words.seconds(limit),
        join=options.get("j", "n"),
        output=options.get("o"),
        error=options.get("e"),
        keep=options.get("k", "n"),
        array=array,
        dependencies=tuple(dependencies(attributes.get("depend", ""))),
        accounts=tuple((option, value) for option, value in accounts.items() if value),
        rerunable=options.get("r", "y") == "y",
        hold="h" in options,
        block=attributes.get("block", "").lower() == "true",
        silent="z" in options,
        begin=options.get("a"),
        shell=options.get("S"),
        umask=int(attributes["umask"], 8) if "umask" in attributes else None,
        variables=variables(options.get("v", ""), environ),
        all_variables="V" in options,
    )


def check(given: Given) -> None:
    """Raise PbsError for a word that is not known, and for a value that is not of its kind."""
    for letter, value in given.options.items():
        option = words.OPTIONS[letter]
        if option.value is not None and not matches(option.value, value):
            raise PbsError(f"qsub: illegal -{letter} value", words.BAD_VALUE, usage=True)
        if option.played == "refused":
            raise not_played(f"-{letter} ({option.meaning})")
    for name, value in given.attributes.items():
        attribute = words.ATTRIBUTES.get(name)
        if attribute is None:
            raise PbsError(f"qsub: Undefined attribute {name}", words.UNDEFINED)
        if not matches(attribute.value, value):
            raise PbsError("qsub: illegal -W value", words.BAD_VALUE, usage=True)
        if attribute.played == "refused" and value.lower() != "false":
            raise not_played(f"-W {name} ({attribute.meaning})")
    for name, value in given.resources.items():
        resource = words.RESOURCES.get(name)
        if resource is None or resource.where == "chunk":
            raise PbsError(f"qsub: Unknown resource Resource_List.{name}", words.UNKNOWN_RESOURCE)
        if not value or not matches(resource.value, value):
            raise bad_value(name)


def not_played(what: str) -> PbsError:
    return PbsError(f"qsub: the stand-in for PBS cannot do {what}. A real PBS is needed.", 1)


def bad_value(name: str) -> PbsError:
    return PbsError(
        f"qsub: Illegal attribute or resource value Resource_List.{name}", words.BAD_VALUE
    )


# ---- the shape: chunks and place ----


def shape(resources: Mapping[str, str]) -> tuple[tuple[Chunk, ...], str | None]:
    """(chunks, place). Resources of a chunk cannot stand beside a select."""
    place = resources.get("place")
    both = [name for name in resources if words.RESOURCES[name].where == "both"]
    if "select" in resources:
        if clash := [*both, *(name for name in resources if name == "nodes")]:
            raise PbsError(
                'qsub: "-lresource=" cannot be used with "select" or "place", resource is: '
                + clash[0],
                words.NOT_WITH_SELECT,
            )
        return tuple(chunk(part) for part in resources["select"].split("+")), place
    if "nodes" in resources:
        return tuple(old_nodes(part) for part in resources["nodes"].split("+")), "scatter"
    return (chunk(":".join(["1", *(f"{name}={resources[name]}" for name in both)])),), place


def chunk(text: str) -> Chunk:
    """One part of a select: "2:ncpus=4:mpiprocs=1"; without a number it is one chunk."""
    count, pairs = 1, text.split(":")
    if pairs[0].isdigit():
        count, pairs = int(pairs[0]), pairs[1:]
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or count == 0 or name in found:
            raise bad_value("select")
        resource = words.RESOURCES.get(name)
        if resource is None or resource.where == "job":
            raise PbsError(
                f'qsub: Resource invalid in "select" specification: {name}', words.NOT_IN_SELECT
            )
        if not matches(resource.value, value):
            raise bad_value("select")
        found[name] = value
    numbers = {
        name: int(found[name])
        for name in ("ncpus", "mpiprocs", "ompthreads", "ngpus")
        if name in found
    }
    host = found.get("host") or found.get("vnode")
    return Chunk(count=count, mem=found.get("mem"), host=host, **numbers)


def old_nodes(text: str) -> Chunk:
    """One part of the old nodes: "2:ppn=3"."""
    found = re.fullmatch(r"([1-9]\d*)(?::ppn=([1-9]\d*))?", text)
    if not found:
        raise bad_value("nodes")
    ranks = int(found[2] or 1)
    return Chunk(count=int(found[1]), ncpus=ranks, mpiprocs=ranks)


# ---- lists in a value ----


def dependencies(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(kind, job ids) of "afterok:1.ctl:2.ctl,afterany:3.ctl"."""
    for part in filter(None, text.split(",")):
        kind, *jobs = part.split(":")
        if kind not in words.DEPENDENCIES or not jobs or not all(jobs):
            raise PbsError("qsub: illegal -W value", words.BAD_VALUE, usage=True)
        if words.DEPENDENCIES[kind] is None:
            raise not_played(f"-W depend={kind}")
        yield kind, tuple(jobs)


def variables(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    r"""The variables of `-v NAME,NAME=value`; a comma in a value stands in quotes or after \."""
    found = {}
    for part in re.findall(r"""((?:\\.|"[^"]*"|'[^']*'|[^,"'\\])+)""", text):
        name, sign, value = part.partition("=")
        if sign:
            found[name] = re.sub(r"""\\(.)|["']""", lambda match: match[1] or "", value)
        elif name in environ:
            found[name] = environ[name]
        else:
            raise PbsError("qsub: cannot send environment with the job", 1)
    return found
