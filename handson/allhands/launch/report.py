"""How did the ranks end, and if badly, which rank and why? From a job's records to one sentence."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from allhands.launch import where
from allhands.launch.job import Job, LaunchError

LAST_LINES = 40  # of a failed rank's stderr, shown below the error
SHOWN = 200  # characters of a message or of a line of output
# MPICH's word on the stderr of a rank that aborts; its mpiexec then ends even those that watch.
MPICH_ABORT = re.compile(r"^Abort\(\d+\).*?: (.+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)  # there may be many
class Line:
    """One line of a rank's output. stream: "out" or "err"; text without the line's end."""

    stream: str
    text: str


@dataclass(frozen=True)
class Finished:
    """A job that is over. Index everything by rank.

    returncodes: 0 good, -9 ended by signal 9, None if the job's end came first.
    output: the lines of stdout in order, then those of stderr. From the middle of more than 2 MiB
    the lines are missing; one line stands there and says how much.
    """

    ranks: int
    returncodes: tuple[int | None, ...]
    output: tuple[tuple[Line, ...], ...]
    wall_s: float

    def text(self, rank: int = 0, stream: str = "out") -> str:
        return "\n".join(line.text for line in self.output[rank] if line.stream == stream)


class RanksFailed(LaunchError):
    """A rank failed. finished: what is known of all ranks. culprits: those that failed first."""

    def __init__(self, sentence: str, finished: Finished, culprits: tuple[int, ...] = ()) -> None:
        super().__init__(sentence)
        self.finished = finished
        self.culprits = culprits


class TimeUp(RanksFailed):
    """The time limit came first. culprits: ranks that raised while the others went on waiting."""


class WrongWorld(LaunchError):
    """The ranks found another world than the one asked for."""


@dataclass(frozen=True)
class Ending:
    """How one rank ended. cause: what it did wrong by itself; empty if nothing is known."""

    rank: int
    cause: str = ""
    raised: bool = False
    at_s: float = float("inf")
    code: int | None = None
    over: bool = False  # the script is, though its process may not be


def finished(job: Job, keeper: dict, endings: list[Ending]) -> Finished:
    return Finished(
        ranks=job.ranks,
        returncodes=tuple(ending.code for ending in endings),
        output=tuple(read_output(job, rank) for rank in range(job.ranks)),
        wall_s=keeper["wall_s"],
    )


def judge(job: Job, keeper: dict, time_limit_s: float, launcher: str) -> Finished:
    """Return the finished job, or raise the LaunchError that says what went wrong."""
    worlds = [job.read(path.name)["size"] for path in sorted(job.folder.glob("*.world"))]
    if worlds:
        raise WrongWorld(wrong_world(job, worlds, launcher))
    endings = [read_ending(job, rank, keeper["stopped_s"]) for rank in range(job.ranks)]
    done = finished(job, keeper, endings)
    culprits = first_to_fail(endings)
    if keeper["why"] in ("time", "hang"):
        error = TimeUp(time_is_up(job, endings, culprits, time_limit_s, done), done, culprits)
    elif keeper["why"] == "output":
        sentence, talkers = too_much(job, keeper["most_bytes"])
        if culprits:
            sentence = f"{failure(endings, culprits)}; {sentence}"
        error = RanksFailed(sentence, done, culprits or talkers)
    elif culprits:
        error = RanksFailed(failure(endings, culprits), done, culprits)
    elif set(done.returncodes) == {0}:
        return done
    else:
        error = RanksFailed(no_cause(job, keeper, endings, launcher), done, left_early(endings))
    if culprits:
        origin, text = f"rank {culprits[0]}'s stderr", done.text(culprits[0], "err")
    else:
        origin, text = f"what {launcher} said", job.text("launcher.out")
    if text.strip():
        error.add_note("\n".join([f"The end of {origin}:", *text.splitlines()[-LAST_LINES:]]))
    raise error


def read_ending(job: Job, rank: int, stopped_s: float) -> Ending:
    """What a rank did before the keeper stopped the job; what came later is no cause."""

    def read(kind: str) -> dict | None:
        record = job.read(f"rank{rank}.{kind}")
        return record if record and record["at_s"] <= stopped_s else None

    raised, over, ended = read("raised"), read("over") is not None, read("ended")
    code = ended["code"] if ended else None
    if raised:
        at = f" ({raised['where']})" if raised["where"] else ""
        return Ending(rank, short(raised["what"]) + at, True, raised["at_s"], code, over)
    if code:
        return Ending(rank, ended_badly(code), False, ended["at_s"], code, over)
    if ended is None and (abort := MPICH_ABORT.search(job.text(f"rank{rank}.err"))):
        return Ending(rank, f"aborted the job ({short(abort[1])})", code=code, over=over)
    return Ending(rank, code=code, over=over)


def ended_badly(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ": out of memory?" if code == -signal.SIGKILL else ""
    return f"was killed by signal {-code} ({signal.Signals(-code).name}){hint}"


def first_to_fail(endings: list[Ending]) -> tuple[int, ...]:
    """The rank that failed first, and those that failed of themselves in the same way.

    A signal counts for the first alone: launchers end the other ranks by signals too.
    """
    failed = [ending for ending in endings if ending.cause]
    if not failed:
        return ()
    first = min(failed, key=lambda ending: ending.at_s)
    alone = not first.raised and (first.code or 0) < 0
    return tuple(
        ending.rank
        for ending in failed
        if ending is first or (ending.cause == first.cause and not alone)
    )


def failure(endings: list[Ending], culprits: tuple[int, ...]) -> str:
    """rank 2 raised ValueError: no such word (line 7 of train.py); ranks 0, 1, 3 were stopped"""
    others = [ending for ending in endings if ending.rank not in culprits]
    clauses = [f"{named(culprits)} {endings[culprits[0]].cause}"]
    clauses += [
        f"rank {ending.rank} {ending.cause} after that" for ending in others if ending.raised
    ]
    stopped = [ending.rank for ending in others if not ending.raised and ending.code != 0]
    if stopped:
        clauses.append(f"{named(stopped)} {'were' if len(stopped) > 1 else 'was'} stopped")
    return "; ".join(clauses)


def too_much(job: Job, most_bytes: int) -> tuple[str, tuple[int, ...]]:
    """(what to say, who) about ranks that wrote more than `most_bytes` to a stream."""
    n_bytes = {
        (rank, stream): (job.folder / f"rank{rank}.{name}").stat().st_size
        for rank in range(job.ranks)
        for stream, name in (("stdout", "out"), ("stderr", "err"))
        if (job.folder / f"rank{rank}.{name}").exists()
    }
    talkers = [key for key, n in n_bytes.items() if n > most_bytes]
    wrote = " and ".join(
        f"rank {rank} wrote {n_bytes[rank, to]:,} bytes to {to}" for rank, to in talkers
    )
    return (
        f"{wrote}, and a job is ended above {most_bytes:,} bytes: print less, or into a file of "
        "the program's own",
        tuple(dict.fromkeys(rank for rank, _ in talkers)),
    )


def time_is_up(
    job: Job, endings: list[Ending], culprits: tuple[int, ...], limit_s: float, done: Finished
) -> str:
    running = [ending for ending in endings if ending.code is None]
    if culprits:
        waiting = [ending for ending in running if ending.rank not in culprits]
        cause = f"{named(culprits)} {endings[culprits[0]].cause}"
        if not waiting:
            return f"{cause}, and the job did not end within {limit_s:g} s"
        ranks = named(ending.rank for ending in waiting)
        waited = f"{ranks} waited until the time limit of {limit_s:g} s"
        return f"{cause}, and {waited}; {places(job, waiting, done)}"
    if len(running) == job.ranks:
        verdict = f"no rank ended within {limit_s:g} s"
    else:
        ended = named(ending.rank for ending in endings if ending.code is not None)
        late = named(ending.rank for ending in running)
        verdict = f"{late} did not end within {limit_s:g} s, while {ended} did"
    return f"{verdict}; {places(job, running, done)}"


def places(job: Job, endings: Iterable[Ending], done: Finished) -> str:
    """Where each rank was when the time was up, and its last line; the same one is quoted once."""
    said = []
    first_with: dict[str, int] = {}
    for ending in endings:
        at = stood_at(job.text(f"rank{ending.rank}.stack")) or "an unknown place"
        if ending.over:
            at = "its end, where MPI waits for the other ranks"
        line = next(
            (one.text for one in reversed(done.output[ending.rank]) if one.text.strip()), ""
        )
        same = first_with.setdefault(line, ending.rank)
        if not line:
            last = "it said nothing"
        elif same == ending.rank:
            last = f'its last line: "{short(line)}"'
        else:
            last = f"the same last line as rank {same}"
        said.append(f"rank {ending.rank} was at {at} ({last})")
    return "; ".join(said)


def stood_at(stack: str) -> str:
    """The innermost line in the script's folder, from what `faulthandler` wrote."""
    return where.told(where.in_script_folder(where.stack_written(stack)))


def wrong_world(job: Job, sizes: list[int], launcher: str) -> str:
    size = sizes[0]
    built = f"{len(sizes)} worlds of {size} rank{'s' if size != 1 else ''}"
    return (
        f"asked for {job.ranks} ranks, but MPI built {built}: "
        f"{launcher} and the ranks' mpi4py belong to different MPIs"
    )


def no_cause(job: Job, keeper: dict, endings: list[Ending], launcher: str) -> str:
    lines = (line.strip(" -") for line in job.text("launcher.out").splitlines())
    said = " | ".join(filter(None, lines))
    said = f"; it said: {short(said)}" if said else ""
    if keeper["why"] != "launcher ended":
        return "the job was stopped from outside"
    if not any(job.folder.glob("rank*.pid")):
        return f"{launcher} ended with exit code {keeper['code']} before a rank started{said}"
    running = [ending.rank for ending in endings if ending.code is None]
    early = left_early(endings)
    before = f" before {named(running)} did" if running else ""
    sentence = f"{launcher} {ended_badly(keeper['code'])}{before}{said}"
    if early:
        left = f"{named(early)} ended with exit code 0 within its program (os._exit?)"
        sentence = f"{left}; {sentence}"
    return sentence


def left_early(endings: list[Ending]) -> tuple[int, ...]:
    """The ranks whose process ended well, though their script did not come to its end."""
    return tuple(ending.rank for ending in endings if ending.code == 0 and not ending.over)


def read_output(job: Job, rank: int) -> tuple[Line, ...]:
    return tuple(
        Line(stream, text)
        for stream in ("out", "err")
        for text in job.text(f"rank{rank}.{stream}").splitlines()
    )


def named(ranks: Iterable[int]) -> str:
    ranks = list(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
