"""Is what a site file names really there? Asked on the login node; nothing is submitted.

Each check is a function (values, seen, node) -> Finding or None: nothing to say. The values are the
site file's, without the prefix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from allhands.sites.detect import SUBMITS, Node, Seen, load_and_find

Values = Mapping[str, str]
GOOD, NOT_KNOWN, BAD = "good", "not known", "bad"  # not known: cannot be told from here


@dataclass(frozen=True)
class Finding:
    """One line: what was asked, what was seen, and what to do if it is not good."""

    state: str
    asked: str
    seen: str
    todo: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<9} {self.asked}: {self.seen}"
        return f"{line}. {self.todo}" if self.todo else line


def scheduler(values: Values, seen: Seen, node: Node) -> Finding | None:
    if values["SCHEDULER"] == "none":
        return Finding(GOOD, "scheduler", "none: jobs run on this machine")
    command = SUBMITS[values["SCHEDULER"]]
    if node.which(command):
        return Finding(GOOD, "scheduler", f"{values['SCHEDULER']}, by {command}")
    return Finding(
        BAD, "scheduler", f"{command} is not on this machine", "Log in to the site's login node."
    )


def queue(values: Values, seen: Seen, node: Node) -> Finding | None:
    name = values.get("QUEUE", "")
    if not values.get("QUEUE_OPTION"):
        return None
    if not name:
        return Finding(BAD, "queue", "ALLHANDS_QUEUE is empty", "Write it, or empty its option.")
    if not seen.queues:
        return Finding(NOT_KNOWN, "queue", f"{name}; the scheduler lists none", "Ask the site.")
    missing = [one for one in name.split(",") if one not in seen.queues]
    if missing:
        known = ", ".join(sorted(seen.queues))
        return Finding(BAD, "queue", f"there is no {', '.join(missing)}", f"Known: {known}.")
    return Finding(GOOD, "queue", name)


def account(values: Values, seen: Seen, node: Node) -> Finding | None:
    option, name = values.get("ACCOUNT_OPTION", ""), values.get("ACCOUNT", "")
    if not option:
        return None
    if not name:
        return Finding(
            BAD, "account", "ALLHANDS_ACCOUNT is empty", "Write it, export it, or empty its option."
        )
    known = seen.accounts
    shown = option.replace("{}", name)
    if not known:
        return Finding(
            NOT_KNOWN, "account", f"{shown}; the scheduler does not say", "A job will tell."
        )
    if name not in known:
        return Finding(BAD, "account", f"{name} is not yours", f"Known: {', '.join(known)}.")
    return Finding(GOOD, "account", shown)


def gpus(values: Values, seen: Seen, node: Node) -> Finding | None:
    stated, there = values.get("GPUS_PER_NODE", ""), seen.queues.get(values.get("QUEUE", ""))
    if values.get("LEVEL") == "cpu" or there is None or not there.gpus:
        return None
    if stated and int(stated) > there.gpus:
        return Finding(
            BAD, "GPUs of a node", f"{there.gpus}, not {stated}", "Correct ALLHANDS_GPUS_PER_NODE."
        )
    return Finding(GOOD, "GPUs of a node", str(there.gpus))


def modules(values: Values, seen: Seen, node: Node) -> Finding | None:
    names = values.get("MODULES", "")
    if not names:
        return None
    if load_and_find(node, names, "bash"):
        return Finding(GOOD, "modules", names)
    return Finding(BAD, "modules", f"'{names}' cannot be loaded", "See: module avail.")


def launcher(values: Values, seen: Seen, node: Node) -> Finding | None:
    words = values.get("LAUNCHER", "").split()
    if not words:
        return Finding(BAD, "launcher", "none", "Set ALLHANDS_LAUNCHER: labs have several ranks.")
    here = node.which(words[0]) or load_and_find(node, values.get("MODULES", ""), words[0])
    kinds = [word.partition("=")[2] for word in words if word.startswith("--mpi=")]
    if not here and values["SCHEDULER"] != "none":
        return Finding(
            NOT_KNOWN, "launcher", f"{words[0]} is not here", "A compute node may have it."
        )
    if not here:
        return Finding(BAD, "launcher", f"{words[0]} is not here", "Activate the environment.")
    if kinds and seen.mpi_types and kinds[0] not in seen.mpi_types:
        known = ", ".join(seen.mpi_types)
        return Finding(BAD, "launcher", f"srun has no --mpi={kinds[0]}", f"It has: {known}.")
    fitting = {"mpich": ("pmi2", "pmi1"), "openmpi": ("pmix",)}.get(seen.mpi, ())
    if kinds and fitting and not kinds[0].startswith(fitting):
        return Finding(
            BAD,
            "launcher",
            f"--mpi={kinds[0]}, but this environment has {seen.mpi}",
            f"Ranks would not find each other: use --mpi={fitting[0]}.",
        )
    if seen.mpi == "mpich" and kinds and kinds[0].startswith("pmi2"):
        return Finding(
            NOT_KNOWN,
            "launcher",
            "srun --mpi=pmi2 starts ranks, but those of MPICH's wheel may hang on several nodes",
            "Prefer mpiexec -n {ranks}.",
        )
    return Finding(GOOD, "launcher", " ".join(words))


def conda(values: Values, seen: Seen, node: Node) -> Finding | None:
    name = values.get("CONDA_ENV", "")
    if not name:
        return None
    known = node.ask("conda", "env", "list")
    if not known:
        return Finding(
            NOT_KNOWN, "conda environment", f"{name}; conda is not here", "See ALLHANDS_MODULES."
        )
    if name in known.split():
        return Finding(GOOD, "conda environment", name)
    return Finding(BAD, "conda environment", f"there is no {name}", "See: conda env list.")


def container(values: Values, seen: Seen, node: Node) -> Finding | None:
    words = values.get("CONTAINER", "").split()
    if not words:
        return None
    images = [word for word in words if word.endswith((".sif", ".sqsh", ".img"))]
    missing = [image for image in images if not Path(image).exists()]
    if missing:
        return Finding(BAD, "container", f"there is no file {missing[0]}", "Build or copy it.")
    if not (node.which(words[0]) or load_and_find(node, values.get("MODULES", ""), words[0])):
        return Finding(
            NOT_KNOWN, "container", f"{words[0]} is not here", "A compute node may have it."
        )
    return Finding(GOOD, "container", " ".join(words))


def network(values: Values, seen: Seen, node: Node) -> Finding | None:
    name = values.get("NETWORK", "")
    if not name:
        return None
    if name in seen.interfaces:
        return Finding(GOOD, "network", name)
    known = ", ".join(seen.interfaces) or "none"
    return Finding(
        NOT_KNOWN,
        "network",
        f"{name} is not here ({known})",
        "Look on a compute node: ip -brief address.",
    )


def scratch(values: Values, seen: Seen, node: Node) -> Finding | None:
    folder = values.get("SCRATCH", "")
    if not folder:
        return None
    if node.can_write(folder):
        return Finding(GOOD, "run folders", folder)
    return Finding(BAD, "run folders", f"{folder} cannot be written", "Make it, or name another.")


CHECKS: tuple[Callable[[Values, Seen, Node], Finding | None], ...] = (
    *(scheduler, queue, account, gpus, modules, launcher, conda, container, network, scratch),
)


def check(values: Values, seen: Seen, node: Node) -> list[Finding]:
    """All findings, in order. values: as `Jobs.values` gives them."""
    return [found for one in CHECKS if (found := one(values, seen, node))]
