"""The checks of lab 0: one function for each exercise, named by its id.

What is asked about this machine is compared with this machine, and with the participant's own
table; scripts, ranks and messages are played, so the right answer is known.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path

from allhands.doctor.machine import Machine
from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.bug4_slower_ranks import Rank, on_ranks
from allhands.grade.checks.lab0_doctor_link import link, message, numbers
from allhands.grade.checks.lab0_doctor_played import run_script
from allhands.launch import by_script
from allhands.launch.job_header import header, limit_s

__all__ = ["here", "job", "link", "local_rank", "message", "script"]

LIMIT_S = 600  # the ten minutes that the job script should ask for


def here(mark: Marker, here: Mapping) -> None:
    said = numbers(mark, here, ("cores", "threads"))
    cores = Machine().cores()
    right = max(1, cores // 2)
    mark.require(
        said == {"cores": cores, "threads": right},
        1,
        "the cores that this process may use, and the threads of each of two ranks that share them",
        f"{said['cores']:g} cores and {said['threads']:g} threads",
        likely(
            (said["cores"] != cores, "take the number in the line `cores` of the doctor's report"),
            (said["threads"] == 0, "no rank can work with 0 threads: at least 1"),
            (
                said["threads"] == cores,
                "that is as many as one rank alone may take: two ranks would be twice as many "
                "threads as cores",
            ),
            otherwise="share the cores out between two ranks; a whole number, at least 1",
        ),
    )


def script(mark: Marker, script: str) -> None:
    mark.need(
        isinstance(script, str) and "#SBATCH" in script and script.startswith("#!"),
        "the text of a job script; its first line is `#!/bin/bash`",
        show(script),
    )
    found = header(script)
    inside = set(re.findall(r"(--[a-z-]+)=", "".join(re.findall(r"^# *SBATCH.*", script, re.M))))
    late = inside - set(found)
    nodes, each, ranks = (found.get(f"--{k}", "") for k in ("nodes", "ntasks-per-node", "ntasks"))
    shape = nodes == "2" and (each, ranks) in (("2", ""), ("", "4"), ("2", "4"))
    asked_s = _limit(found.get("--time", ""))
    counts = f"sbatch reads {show(' '.join(f'{k}={v}' for k, v in found.items()))}"
    mark.require(
        shape and asked_s == LIMIT_S and not late,
        1,
        "a header that asks for 2 nodes, 2 ranks on each, and ten minutes, and every line of which "
        "counts",
        counts + (f"; a limit of {asked_s:g} s" if asked_s else "; no time limit"),
        likely(
            (
                re.search(r"^# +SBATCH", script, re.M),
                "`# SBATCH` with a space is a comment: `#SBATCH`",
            ),
            (late, f"headers after the first command do not count: move {', '.join(late)} up"),
            (asked_s == 10, "`00:10` is minutes:seconds, so ten seconds; write 00:10:00"),
            (nodes != "2", "how many nodes does it ask for?"),
            (not shape, "two ranks on each node: `--ntasks-per-node=2`"),
            otherwise="ten minutes are `--time=00:10:00`",
        ),
    )
    failing, passing = run_script(script, 7), run_script(script, 0)
    mark.require(
        failing.code == 7 and passing.code == 0 and bool(failing.calls),
        1,
        "a job whose exit code is that of the program that `srun` starts",
        f"the program ended with 7 and the job with {show(failing.code)}; the program with 0 and "
        f"the job with {show(passing.code)}",
        likely(
            (not failing.calls, "start the program with `srun`, once: it starts it on all ranks"),
            (
                failing.code == 0,
                "a script's exit code is that of its last command: which one is it?",
            ),
            (passing.code != 0, "a program that ends well is a job that ends well"),
            otherwise="let `srun ...` be the last line, or write down `code=$?` and `exit $code`",
        ),
    )


def _limit(text: str) -> float:
    """The time limit in seconds; 0 for none, and for what sbatch does not understand."""
    try:
        return limit_s(text)
    except ValueError:
        return 0


def job(mark: Marker, job: Mapping) -> None:
    names = ("exit_code", "ranks", "log", "run_folder")
    mark.need(
        isinstance(job, Mapping) and set(names) <= set(job),
        f"a dict with {', '.join(names)}",
        show(job),
    )
    project = by_script.PROJECT
    log, folder = project / str(job["log"]), project / str(job["run_folder"])
    said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    ended = re.findall(r"ended with exit code (\d+)", said)
    mark.require(
        bool(ended) and job["exit_code"] == int(ended[-1]),
        1,
        "the log of a job that has ended, and the exit code that it says",
        f"log {show(job['log'])}, exit code {show(job['exit_code'])}",
        likely(
            (
                isinstance(job["exit_code"], str),
                "an exit code is a number: write it without quotes",
            ),
            (log.suffix == ".job", "that is the note; the log ends in `.log`"),
            (
                not log.is_file(),
                f"there is no such file: copy the path behind `log`; it begins in {project}",
            ),
            (not ended, "this job has not ended yet: look at the last lines of its log"),
            otherwise="it stands in the last line of the log",
        ),
    )
    places = _lines(folder / "places.txt")
    told = re.findall(r"Run folder: (.+)", said)
    own = not told or (project / told[-1].strip()).resolve() == folder.resolve()
    mark.require(
        bool(places) and job["ranks"] == len(places) and (folder / "link.csv").is_file() and own,
        1,
        "the run folder, and the number of ranks",
        f"run folder {show(job['run_folder'])}, ranks {show(job['ranks'])}",
        likely(
            (
                ended and ended[-1] != "0",
                "this job has failed: its log says why; mend that, and run the job once more",
            ),
            (
                folder.resolve() == (project / "runs" / "jobs").resolve(),
                "runs/jobs has the logs and notes of all jobs; each job has a run folder as well",
            ),
            (
                not folder.is_dir(),
                "there is no such folder: copy what stands behind `Run folder:` in the last line",
            ),
            (not places, "this folder has no places.txt: is it the run folder of your job?"),
            (not own, "that is the run folder of another job: the log names its own"),
            (isinstance(job["ranks"], str), "write the number of ranks without quotes"),
            (job["ranks"] != len(places), "count the lines of places.txt: one for each rank"),
            otherwise="the link was not measured: a job of one rank has nobody to send to",
        ),
    )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def local_rank(mark: Marker, local_rank: Callable) -> None:
    def numbers(hosts: Sequence[str]) -> tuple[list, list[Rank]]:
        def program(comm: Rank) -> object:
            return mark.run(local_rank, comm, hosts[comm.rank], none_passes=True)

        results, comms = on_ranks(program, len(hosts))
        mark.need(
            all(isinstance(one, Integral) for one in results),
            "a whole number on every rank",
            show(results),
            likely((None in results, "does it end with `return ...`?")),
        )
        return [int(one) for one in results], comms

    two = ("n1", "n1", "n2", "n2")
    found, comms = numbers(two)
    calls = {tuple(name for name, _ in comm.calls) for comm in comms}
    filled = mark.require(
        found == [0, 1, 0, 1] and len(calls) == 1,
        1,
        "0, 1, 0, 1 for two nodes that are filled one after the other, and the same calls on every "
        "rank",
        f"{show(found)} for the hosts {show(list(two))}",
        likely(
            (len(calls) > 1, "all ranks must make the same calls: on real ranks this one hangs"),
            (found == [0, 1, 2, 3], "that is the rank itself; the second node begins at 0 again"),
            (found == [2, 2, 2, 2], "that is how many ranks the host has"),
            (found == [1, 2, 1, 2], "count from 0: only ranks with a smaller number count"),
            (
                found == [0, 0, 2, 2],
                "that is the first rank of the host; how many ranks of the host come before?",
            ),
            otherwise="in the list of all hosts, look at the part before your own rank",
        ),
    )
    placements = {
        ("n1", "n2", "n1", "n2"): [0, 0, 1, 1],
        ("n1", "n1", "n1", "n2"): [0, 1, 2, 0],
        ("n2", "n1", "n1"): [0, 0, 1],
        ("n1",): [0],
    }
    seen = {hosts: numbers(hosts)[0] for hosts in placements}
    wrong = next((hosts for hosts in placements if seen[hosts] != placements[hosts]), ())
    mark.require(
        not wrong,
        2,
        "the right number in whatever order the ranks lie on the hosts",
        f"{show(seen.get(wrong))} for the hosts {show(list(wrong))}, where "
        f"{show(placements.get(wrong))} is right",
        likely(
            (
                filled and wrong == ("n1", "n2", "n1", "n2"),
                "arithmetic with the rank is right only while ranks fill node after node: count "
                "the hosts instead",
            ),
            otherwise="hosts[: comm.rank] are the hosts of the ranks with smaller numbers",
        ),
        after=filled,
    )
