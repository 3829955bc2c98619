"""Which words does PBS know? The options of qsub, the resources of `-l`, the attributes of `-W`.

All of it is data; `header.py` reads with it. Words, messages and exit codes are those of
OpenPBS 23 (its manual pages, and `qsub.c` and `pbs_error.h` read for the rules). `played` says what
the stand-in on Slurm does with a word: "yes"; "no": taken and without effect here, as it would be
without the site's mail or priorities; "refused": a job that needs it could not run here as it
would there.
"""

import re
from dataclasses import dataclass

# The error numbers of OpenPBS that a user meets. A command exits with the number modulo 256.
UNKNOWN_JOB, UNDEFINED, NOT_ALLOWED, BAD_VALUE, UNKNOWN_QUEUE = 15001, 15002, 15007, 15014, 15018
UNKNOWN_RESOURCE, TOO_MUCH, NO_DEFAULT_QUEUE = 15035, 15036, 15037
BAD_DEPENDENCY, NOT_IN_SELECT, NOT_WITH_SELECT = 15056, 15108, 15109
HAS_FINISHED = 15139

USAGE = """\
usage: qsub [-a date_time] [-A account_string] [-c interval]
\t[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
\t[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
\t[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
\t[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
\t[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version
"""


class PbsError(Exception):
    """What a PBS command says on standard error before it ends with `code`.

    number: an exit code, or an error number of PBS; usage: does qsub show its usage too?
    """

    def __init__(self, message: str, number: int, usage: bool = False):
        super().__init__(message)
        self.code, self.usage = number % 256, usage


@dataclass(frozen=True)
class Option:
    """An option of qsub. value: a regular expression of what it takes; None: it takes nothing."""

    letter: str
    meaning: str
    value: str | None
    played: str = "yes"


ANY = r"(?s).*"
OPTIONS = {
    option.letter: option
    for option in (
        Option("a", "not before this time: [[[[CC]YY]MM]DD]hhmm[.ss]", r"(\d{4,12})(\.\d\d)?"),
        Option("A", "account", ANY),
        Option("c", "checkpoint interval", ANY, "no"),
        Option("C", "what a directive begins with, instead of #PBS", ANY),
        Option("e", "file of standard error", r".+"),
        Option("f", "submit in the foreground", None, "no"),
        Option("G", "graphical job (Windows)", None, "refused"),
        Option("h", "hold the job until qrls", None),
        Option("I", "interactive job", None, "refused"),
        Option("j", "join output and error", r"oe|eo|n"),
        Option("J", "array: X-Y[:step][%most at a time]", r"\d+-\d+(:[1-9]\d*)?(%[1-9]\d*)?"),
        Option("k", "keep output where it is written; d: directly in its place", r"n|[oed]{1,3}"),
        Option("l", "resources", ANY),
        Option("m", "when to send mail", r"n|j?[abe]+j?", "no"),
        Option("M", "to whom", ANY, "no"),
        # The first character; the length is PBS_MAXJOBNAME. Before version 14 it was 15.
        Option("N", "name of the job", r"[A-Za-z0-9_+\-][!-~]{0,229}"),
        Option("o", "file of standard output", r".+"),
        Option("p", "priority", r"\s*[-+]?\d+", "no"),
        Option("P", "project", ANY),
        Option("q", "queue", r"\S+"),
        Option("r", "may it run again?", r"[yn]"),
        Option("R", "remove output files of a good run", r"o|e|oe|eo", "no"),
        Option("S", "the shell that runs the script", r"/\S+"),
        Option("u", "run as another user", ANY, "no"),
        Option("v", "variables of the job", ANY),
        Option("V", "all variables of the submitter", None),
        Option("W", "other attributes", ANY),
        Option("X", "forward X11", None, "refused"),
        Option("z", "do not print the job id", None),
    )
}

COUNT, SIZE, NAME = r"\d+", r"\d+([kmgtp]?[bw])?", r"[\w.\-]+"
TIME = r"\d+(:\d+){0,2}(\.\d+)?"


@dataclass(frozen=True)
class Resource:
    """A resource of `-l`. where: "job", "chunk" (of a select) or "both"."""

    name: str
    where: str
    value: str
    meaning: str


RESOURCES = {
    resource.name: resource
    for resource in (
        Resource("select", "job", ANY, "chunks: [N:]name=value[:name=value...][+...]"),
        Resource("nodes", "job", ANY, "the old way to say select: N[:ppn=M]"),
        Resource(
            "place",
            "job",
            r"(free|pack|scatter|vscatter)?:?(excl|exclhost|shared)?(:group=\w+)?",
            "how chunks share hosts",
        ),
        Resource("walltime", "job", TIME, "time limit, in seconds or [hours:]minutes:seconds"),
        Resource("min_walltime", "job", TIME, "shortest useful walltime"),
        Resource("max_walltime", "job", TIME, "longest useful walltime"),
        Resource("soft_walltime", "job", TIME, "what the job should need"),
        Resource("cput", "job", TIME, "processor time of the job"),
        Resource("pcput", "job", TIME, "processor time of a process"),
        Resource("pmem", "job", SIZE, "memory of a process"),
        Resource("pvmem", "job", SIZE, "virtual memory of a process"),
        Resource("file", "job", SIZE, "largest file"),
        Resource("nice", "job", r"-?\d+", "nice value"),
        Resource("software", "job", ANY, "a licence"),
        Resource("ncpus", "both", COUNT, "cores"),
        Resource("ngpus", "both", COUNT, "GPUs"),
        Resource("mem", "both", SIZE, "memory"),
        Resource("vmem", "both", SIZE, "virtual memory"),
        Resource("mpiprocs", "both", COUNT, "MPI ranks: lines of PBS_NODEFILE"),
        Resource("ompthreads", "both", COUNT, "OMP_NUM_THREADS"),
        Resource("arch", "both", NAME, "kind of machine"),
        Resource("host", "both", NAME, "this host"),
        Resource("vnode", "chunk", NAME, "this vnode"),
    )
}


@dataclass(frozen=True)
class Attribute:
    """An attribute of `-W`."""

    name: str
    meaning: str
    value: str
    played: str = "yes"


TRUTH = r"(?i)true|false"
ATTRIBUTES = {
    attribute.name: attribute
    for attribute in (
        Attribute("block", "qsub waits, and exits with the job's code", TRUTH),
        Attribute("depend", "wait for other jobs: kind:job[:job...][,...]", r"\S+"),
        Attribute("group_list", "Unix groups, the first counts", r"\S+"),
        Attribute("umask", "of the job and of its output files", r"[0-7]{1,4}"),
        Attribute("max_run_subjobs", "array: most at a time", r"[1-9]\d*"),
        Attribute("run_count", "how often it ran already", r"\d+", "no"),
        Attribute("release_nodes_on_stageout", "give nodes back early", TRUTH, "no"),
        Attribute("tolerate_node_failures", "go on without a node", r"none|all|job_start", "no"),
        Attribute("pwd", "password (Windows)", ANY, "no"),
        Attribute("cred", "credential", ANY, "refused"),
        Attribute("interactive", "interactive job", TRUTH, "refused"),
        Attribute("sandbox", "where the job starts: HOME or PRIVATE", r"HOME|PRIVATE", "refused"),
        Attribute("stagein", "files to fetch", r"\S+", "refused"),
        Attribute("stageout", "files to bring back", r"\S+", "refused"),
        Attribute("reserve_start", "advance reservation", ANY, "refused"),
        Attribute("reserve_end", "advance reservation", ANY, "refused"),
    )
}

# Kinds of dependency. Slurm's word for it; None: the stand-in cannot play it.
DEPENDENCIES = {
    **{"after": "after", "afterok": "afterok", "afternotok": "afternotok", "afterany": "afterany"},
    **dict.fromkeys(("before", "beforeok", "beforenotok", "beforeany", "on", "runone")),
}

# PBS puts chunks together on a host (place=free), but the queues of sites give each its own: in the
# box all queues do, save its own two. `-l place` says otherwise.
FREE_QUEUES = {"debug", "gpu"}


def matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def seconds(text: str) -> int:
    """A duration of PBS in seconds: "90", "1:30" or "0:01:30"."""
    total = 0
    for part in text.partition(".")[0].split(":"):
        total = 60 * total + int(part)
    return total


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
