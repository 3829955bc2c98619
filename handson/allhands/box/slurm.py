"""How does a real Slurm run in a box? Its configuration, its daemons, and when it is ready.

The daemons are Debian's. What differs from a site's Slurm: node sizes are a claim
(`config_overrides`), GPUs are /dev/null, there is no accounting data base, jobs start within about
0.1 s, and one that is requeued starts again after about 5 s (`cred_expire`).
"""

import os
import re
import socket
import subprocess
import time
from pathlib import Path

from allhands.box.asked import Asked
from allhands.box.hosts import ETHERNET, LOGIN, LOGIN_ADDRESS, gpu_paths
from allhands.labs import COURSE

CPUS = 16  # a node; a claim: nothing keeps its jobs to that many cores
MEMORY_MB = 256_000  # likewise: --mem is accepted, and not counted
GPU_TYPE = "fake"
CONTROL_PORT = 6817
READY_S = 45.0
DEFAULT_PARTITION = "debug"
DEBUG_LIMIT, LIMIT = "04:00:00", "1-00:00:00"
SITE_QUEUE = re.compile(r"^ALLHANDS_QUEUE=\$\{ALLHANDS_QUEUE:-([\w.-]+)\}", re.MULTILINE)

CONTROLLER = """\
ClusterName=box
SlurmctldHost={login}({login_address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/spool/slurmctld.pid
SlurmdPidFile={folder}/spool/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobs.txt
AccountingStorageType=accounting_storage/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=2,sched_min_interval=0
EnforcePartLimits=ALL
JobRequeue=1
KillWait=5
MinJobAge=86400
InactiveLimit=0
ReturnToService=2
SlurmctldTimeout=300
SlurmdTimeout=300
MessageTimeout=60
"""


def partitions(sites: Path | None = None) -> list[str]:
    """The partitions beside the default one: `gpu`, and the queue of each site file.

    So a script for that site finds its queue. sites: the folder; default: this project's.
    """
    sites = sites or COURSE.labs_file.parent.parent / "cluster_jobs" / "sites"
    queues = {"gpu"}
    for path in sites.glob("*.env"):
        queues.update(SITE_QUEUE.findall(path.read_text(encoding="utf-8")))
    return sorted(queues - {DEFAULT_PARTITION})


def configuration(asked: Asked, folder: Path) -> dict[str, str]:
    """The files of Slurm's configuration: name and text."""
    gpus = f" Gres=gpu:{GPU_TYPE}:{asked.gpus}" if asked.gpus else ""
    lines = [CONTROLLER.format(folder=folder, login=LOGIN, login_address=LOGIN_ADDRESS).rstrip()]
    lines += ["GresTypes=gpu"] if asked.gpus else []
    lines.append(
        f"NodeName=DEFAULT CPUs={CPUS} Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} "
        f"ThreadsPerCore=1 RealMemory={MEMORY_MB}{gpus} State=UNKNOWN"
    )
    for number, host in enumerate(asked.hosts, 1):
        lines.append(f"NodeName={host} NodeHostname={host} NodeAddr={ETHERNET}.{number}")
    lines.append(
        f"PartitionName={DEFAULT_PARTITION} Nodes=ALL Default=YES MaxTime={DEBUG_LIMIT} State=UP"
    )
    lines += [f"PartitionName={name} Nodes=ALL MaxTime={LIMIT} State=UP" for name in partitions()]
    paths = gpu_paths(folder, asked.gpus)
    gres = [f"Name=gpu Type={GPU_TYPE} File={path}" for path in paths]
    return {
        "slurm.conf": "\n".join(lines) + "\n",
        "gres.conf": "\n".join(["AutoDetect=off", *gres]) + "\n",
        "mpi.conf": f"PMIxCliTmpDirBase={folder}/own/pmix\nPMIxTimeout=60\n",
        "cgroup.conf": "CgroupAutomount=no\n",
        "plugstack.conf": "",
    }


def write(asked: Asked, folder: Path) -> None:
    """Write the configuration and make the folders that the daemons and hosts need."""
    for name in ("state", "log", "own", "spool", "gpu", "munge"):
        (folder / name).mkdir(mode=0o755)
    for host in asked.hosts:
        (folder / "spool" / host).mkdir(mode=0o755)
    for path in gpu_paths(folder, asked.gpus):
        path.touch()
    for name, text in configuration(asked, folder).items():
        (folder / name).write_text(text, encoding="utf-8")
    key = folder / "munge" / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(1024))
    (folder / "munge").chmod(0o700)


def start_munge(folder: Path) -> subprocess.Popen:
    """Start the daemon by which Slurm's messages prove who sent them."""
    own = folder / "munge"
    words = ("--foreground", "--force", f"--key-file={own / 'munge.key'}")
    words += (f"--socket={folder / 'munge.sock'}", f"--pid-file={own / 'munged.pid'}")
    words += (f"--log-file={own / 'munged.log'}", f"--seed-file={own / 'munged.seed'}")
    return _start(folder, "munged", *words, "--num-threads=2")


def start_controller(folder: Path) -> subprocess.Popen:
    return _start(folder, "slurmctld", "-D", "-c")


def start_node(folder: Path, host: str) -> subprocess.Popen:
    return _start(folder, "slurmd", "-D", "-N", host)


def wait_for(what: str, ready, process: subprocess.Popen) -> None:
    """Wait until `ready()` is true. Raises RuntimeError when the daemon ends, or after READY_S."""
    end_s = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended at once, with exit code {process.returncode}")
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what} was not ready after {READY_S:.0f} s")
        time.sleep(0.01)


def controller_listens() -> bool:
    try:
        socket.create_connection((LOGIN_ADDRESS, CONTROL_PORT), timeout=1).close()
    except OSError:
        return False
    return True


def all_idle(asked: Asked, folder: Path) -> bool:
    words = ["sinfo", "--noheader", "--Node", f"--partition={DEFAULT_PARTITION}", "--format=%T"]
    told = subprocess.run(words, env=_environ(folder), capture_output=True, text=True)
    return told.stdout.split() == ["idle"] * asked.nodes


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}


def _start(folder: Path, *command: str) -> subprocess.Popen:
    with (folder / "log" / "daemons.log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environ(folder),
            start_new_session=True,
        )
