"""What does a box need that this machine does not have? Each answer is a sentence with its cure.

Whether root may make namespaces is not guessed: a process tries it (attempt.py).
"""

import glob
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from allhands.box import place

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TUN = Path("/dev/net/tun")
PACKAGES = {  # Debian's and Ubuntu's packages, and a command that each brings
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurm-client": "srun",
    "munge": "munged",
    "iproute2": "ip",
}
PLUGINS = "slurm-wlm-basic-plugins"  # brings no command, but what Slurm loads
PLUGIN_PLACES = ("/usr/lib/*/slurm*/auth_munge.so", "/usr/*/slurm/auth_munge.so")
TRY_LIMIT_S = 30


def missing(link: bool = False) -> list[str]:
    """What this machine lacks for a box, as sentences; none: a box can be started.

    link: whether the box shall have a link with a set rate or delay.
    """
    if sys.platform != "linux":
        return [
            f"A box needs Linux, because its hosts are namespaces of the Linux kernel; this is "
            f"{platform.system()}. Use a Linux machine, or run the jobs without a scheduler: "
            f"cluster_jobs/submit LAB --site local."
        ]
    found = []
    if os.geteuid() != 0:
        program = Path(sys.executable).with_name("allhands")
        found.append(
            f"A box needs root, because it makes network and mount namespaces; this is user "
            f"{os.geteuid()}. Run: sudo {program} box up."
        )
    if packages := missing_packages():
        found.append(
            f"A box needs Debian's Slurm, and {', '.join(packages)} is missing. Run: "
            f"sudo apt-get install -y --no-install-recommends {' '.join(packages)}."
        )
    if os.geteuid() == 0:
        found += [said for said in (tried(), *([tun()] if link else []), base()) if said]
    return found


def missing_packages() -> list[str]:
    packages = [name for name, tool in PACKAGES.items() if not shutil.which(tool, path=PATH)]
    if not any(glob.glob(place) for place in PLUGIN_PLACES):
        packages.append(PLUGINS)
    return packages


def tun() -> str | None:
    """Why the link cannot be made: its switch is a program, which the kernel hands the frames."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return (
            f"A box with --rate or --delay needs {TUN}, and it cannot be opened "
            f"({error.strerror}). Run: sudo modprobe tun; in a container, start it with "
            f"--device {TUN}. Or leave out --rate and --delay."
        )
    return None


def base() -> str | None:
    if place.base_is_ours():
        return None
    return (
        f"A box keeps its files in {place.BASE}, and that is not a folder that root alone can "
        f"write to. Look at it (ls -ld {place.BASE}), and remove it."
    )


def tried() -> str | None:
    """Why root cannot make a box's namespaces here, from a process that tries and ends."""
    words = [sys.executable, "-m", "allhands.box.attempt"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TRY_LIMIT_S)
    if done.returncode == 0:
        return None
    said = (done.stdout + done.stderr).strip().splitlines()
    return (
        f"A box needs {said[-1] if said else 'new namespaces'}. In a container, start that one "
        f"with --privileged; else look at `sysctl user` and at the machine's security module."
    )
