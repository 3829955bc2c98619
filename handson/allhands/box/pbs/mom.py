"""What does a PBS job see when it starts? Runs one on its first host, as PBS's daemon MOM does.

    python -m allhands.box.pbs.mom FOLDER        (the batch script that `qsub` hands to Slurm)

The variables are those that were seen in jobs of OpenPBS 23, and no others: no SLURM_*, none of the
submitter's but with -v and -V. The job starts in the home folder, under a login shell. Its walltime
ends it in seconds, by KILL and without a warning, as there.

In one thing a job here sees more than under a bare PBS: HYDRA_LAUNCHER and HYDRA_LAUNCHER_EXEC make
MPICH's mpiexec start its ranks through `pbs_tmrsh`, as the environment of a site does whose MPI was
not built with PBS's task manager (TM). Behind it stands Slurm's srun.
"""

import contextlib
import json
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.box.pbs.spool import JobId, Spool, without_slurm

KILLED_BY_WALLTIME = -29  # the Exit_status of OpenPBS
MOM_PORT = 15003
POLL_S = 0.05
SLURM_NAME = r"s/^\(\(SLURM\|SRUN\)[A-Z0-9_]*\)=.*/\1/p"  # for sed: names among NAME=value lines


@dataclass(frozen=True)
class Part:
    """Equal chunks, as `qsub` wrote them down."""

    count: int
    ncpus: int
    mpiprocs: int
    threads: int


def tasks_per_host(text: str) -> list[int]:
    """Slurm's "2(x3),1" as [2, 2, 2, 1]."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(tasks) for tasks, times in found for _ in range(int(times or 1))]


def node_file(hosts: Sequence[str], tasks: Sequence[int], parts: Sequence[Part]) -> list[str]:
    """The lines of PBS_NODEFILE: chunk after chunk, its host once a rank.

    tasks: how many chunks Slurm has put on each host.
    """
    places = (host for host, n in zip(hosts, tasks, strict=True) for _ in range(n))
    chunks = (part for part in parts for _ in range(part.count))
    return [host for part, host in zip(chunks, places, strict=False) for _ in range(part.mpiprocs)]


def variables(
    job: Mapping,
    given: Mapping[str, str],
    job_id: JobId,
    aux: Path,
    scratch: Path,
    bin_folder: Path,
) -> dict[str, str]:
    """The environment of the job script. given: the variables of -v and -V."""
    user = pwd.getpwuid(os.getuid())
    threads = str(job["parts"][0]["threads"])
    environ = {
        "HOME": user.pw_dir,
        "LOGNAME": user.pw_name,
        "USER": user.pw_name,
        "SHELL": user.pw_shell,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **job["submitter"],
        **given,
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_JOBCOOKIE": secrets.token_hex(16).upper(),
        "PBS_JOBDIR": user.pw_dir,
        "PBS_JOBID": str(job_id),
        "PBS_JOBNAME": job["name"],
        "PBS_MOMPORT": str(MOM_PORT),
        "PBS_NODEFILE": str(aux / str(job_id)),
        "PBS_NODENUM": "0",
        "PBS_QUEUE": job["queue"],
        "PBS_TASKNUM": "1",
        "NCPUS": threads,
        "OMP_NUM_THREADS": threads,
        "TMPDIR": str(scratch),
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": str(bin_folder / "pbs_tmrsh"),
    }
    if job_id.index is not None:
        environ["PBS_ARRAY_INDEX"] = job_id.index
        environ["PBS_ARRAY_ID"] = str(JobId(job_id.number, ""))
    return environ


@contextlib.contextmanager
def own_files(scratch: Path, of_job: Sequence[Path]) -> Iterator[None]:
    """The job's private TMPDIR, and what else goes when the job ends."""
    shutil.rmtree(scratch, ignore_errors=True)  # of an earlier run of the job that was killed
    scratch.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for path in of_job:
            path.unlink(missing_ok=True)


def run(command: Sequence[str], environ: Mapping[str, str], walltime_s: int | None) -> int:
    """Run the job; return its Exit_status: the code, 256 + a signal's number, or -29."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # qdel: Slurm tells the job's processes itself
    start_s = time.monotonic()
    process = subprocess.Popen(
        command,
        executable="/bin/bash",
        env=environ,
        cwd=environ["HOME"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None:
        used_s = time.monotonic() - start_s
        if walltime_s is not None and used_s > walltime_s:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(
                f"=>> PBS: job killed: walltime {used_s:.0f} exceeded limit {walltime_s}",
                file=sys.stderr,
            )
            return KILLED_BY_WALLTIME
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    return process.returncode if process.returncode >= 0 else 256 - process.returncode


def shell_words(job: Mapping, folder: Path, bin_folder: Path) -> list[str]:
    """A login shell, which becomes the job: its profile has been read, PBS's commands are there."""
    shell = job["shell"] or pwd.getpwuid(os.getuid()).pw_shell
    words = job["command"] or [shell, str(folder / "script.SC")]
    first = f'PATH={shlex.quote(str(bin_folder))}:"$PATH"; exec {shlex.join(words)}'
    return ["-bash", "-c", first]


def main(folder: Path) -> int:
    spool = Spool.here("pbs_mom")
    job, given = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("job", "variables")
    )
    number = int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"])
    job_id = JobId(number, os.environ.get("SLURM_ARRAY_TASK_ID"))
    hosts = spool.slurm("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).stdout
    tasks = tasks_per_host(os.environ["SLURM_TASKS_PER_NODE"])
    lines = node_file(hosts.split(), tasks, [Part(**part) for part in job["parts"]])
    aux, bin_folder = spool.folder / "aux", spool.folder / "bin"
    (aux / str(job_id)).write_text("".join(f"{line}\n" for line in lines))
    (aux / f"{job_id}.slurm").write_text(os.environ["SLURM_JOB_ID"])
    job["submitter"]["PBS_O_QUEUE"] = job["queue"]
    scratch = spool.folder / "tmp" / f"pbs.{job_id}"
    environ = variables(job, given, job_id, aux, scratch, bin_folder)
    if job["umask"] is not None:
        os.umask(job["umask"])
    with own_files(scratch, [aux / str(job_id), aux / f"{job_id}.slurm"]):
        status = run(shell_words(job, folder, bin_folder), environ, job["walltime_s"])
    ended = folder / f"ended{'' if job_id.index is None else f'.{job_id.index}'}"
    ended.with_name(f".{ended.name}").write_text(str(status))
    ended.with_name(f".{ended.name}").replace(ended)
    return status % 256


def run_on(host: str, words: Sequence[str]) -> int:
    """`pbs_tmrsh HOST COMMAND...`: run a command on another host of this job."""
    spool = Spool.here("pbs_tmrsh")
    job_id = os.environ.get("PBS_JOBID", "")
    known = spool.folder / "aux" / f"{job_id}.slurm"
    if not job_id or not known.exists():
        print("pbs_tmrsh: not in a PBS job (PBS_JOBID)", file=sys.stderr)
        return 1
    hide = f"for v in $(env | sed -n '{SLURM_NAME}'); do unset $v; done"
    step = ["srun", f"--jobid={known.read_text()}", "--overlap", "--nodes=1", "--ntasks=1"]
    step += [f"--nodelist={host}", "--mpi=none", "--quiet", "--input=none"]
    environ = without_slurm(os.environ) | {"SLURM_CONF": str(spool.conf)}
    os.execvpe("srun", [*step, "sh", "-c", f"{hide}; {' '.join(words)}"], environ)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
