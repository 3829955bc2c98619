"""Which Debian packages are missing here? Installs them if it may, else says the command.

    python3 handson/packages.py            # as root: installs; else: says what is missing
    python3 handson/packages.py --check    # installs nothing

The list is debian-packages.txt. A package counts as there if the program in its second column is on
PATH, wherever that came from; with "-" dpkg is asked. Services stay stopped. Exit codes: 0 all is
there; 1 something is missing. Standard library only, and no syntax newer than Python 3.6.
"""

import argparse
import collections
import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent / "debian-packages.txt"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # where daemons lie, often not on a person's PATH
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian's switch: exit code 101 means "start nothing"
APT = ("apt-get", "-o", "DPkg::Lock::Timeout=120")
INSTALL = ("install", "-y", "--no-install-recommends")

Package = collections.namedtuple("Package", "name program why")


def read(text):
    """The packages of the list: one a line, `name  program  # what for`."""
    packages = []
    for line in text.splitlines():
        what, _, why = line.partition("#")
        if what.strip():
            name, program = what.split()
            packages.append(Package(name, program, why.strip()))
    return packages


def missing(packages, path=None):
    """Those whose program is not on `path`, or that dpkg does not know as installed."""
    path = path or os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])
    return [each for each in packages if not is_there(each, path)]


def is_there(package, path):
    if package.program != "-":
        return shutil.which(package.program, path=path) is not None
    command = ["dpkg-query", "--show", "--showformat=${Status}", package.name]
    try:
        asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:  # not a Debian
        return False
    return asked.stdout.decode().endswith(" installed")


@contextlib.contextmanager
def no_service_starts(policy=POLICY):
    """While it holds, apt starts no service. A machine's own policy stays as it is."""
    own = policy.exists()
    if not own:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if not own:
            policy.unlink()


def install(names, run=subprocess.call):
    """Whether apt-get could install them; if not at once, it fetches its lists anew before.

    If one cannot be had here, the others are installed all the same.
    """
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")

    def apt(*words):
        return run([*APT, *words], env=environment) == 0

    if apt(*INSTALL, *names):
        return True
    print("packages: apt-get's lists may be old; they are fetched anew.", flush=True)
    if not apt("update"):
        return False
    if apt(*INSTALL, *names):
        return True
    print("packages: not all can be had together; now each for itself.", flush=True)
    good = [apt(*INSTALL, name) for name in names]
    return all(good)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="install nothing")
    asked = parser.parse_args(arguments)
    lacking = missing(read(LIST.read_text(encoding="utf-8")))
    if not lacking:
        print("packages: all of handson/debian-packages.txt is here.")
        return 0
    names = [each.name for each in lacking]
    for each in lacking:
        print(f"packages: {each.name} is missing ({each.why}).")
    if not shutil.which("apt-get"):
        print("packages: there is no apt-get here. Install what gives these programs another way.")
        return 1
    if asked.check or os.geteuid() != 0:
        print("packages: to install them, run: sudo make packages", flush=True)
        return 1
    with no_service_starts():
        install(names)
    left = missing(lacking)
    if left:
        names = ", ".join(each.name for each in left)
        said = f"packages: apt-get could not install {names}; its lines above say why."
        print(said, file=sys.stderr)
        return 1
    print(f"packages: installed {', '.join(names)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
