"""How does a clone become an environment that runs? `make env` calls this; each step says its name.

    python3 handson/setup_env.py .venv
    python3 handson/setup_env.py .venv --python python3.12 --torch-index URL

FOLDER is a virtual environment, which is made if need be, or an existing conda environment. Calling
it again does nothing while the files that define the environment stay as they are. Standard library
only, and no syntax newer than Python 3.6: an old Python must get as far as saying that it is old.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DEFINED_BY = (
    "pyproject.toml",
    "environment.yml",
    "handson/setup_env.py",
    "handson/allhands_compat.pth",
    "handson/chainer-7.8.1/pyproject.toml",
    "handson/chainer-7.8.1/build_chainer.py",
)
PROJECT = ("./handson/chainer-7.8.1", "-e", ".[dev]")  # environment.yml names the same two
OLDEST, NEWEST = (3, 11), (3, 13)
CANDIDATES = ("python3.11", "python3.12", "python3.13", "python3", "python", sys.executable)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NO_INTRUDER = "import sys; from allhands.compat import chainermn_intruder as i; sys.exit(i())"
IMPORTS = "import chainer, chainermn, torch, jupyterlab, allhands"


class Failure(Exception):
    """A step that failed, with the cause and the cure, each a sentence or more."""

    def __init__(self, cause, cure):
        super().__init__(cause)
        self.cause, self.cure = cause, cure


class Known(NamedTuple):
    """A failure that shows itself by a pattern in what pip wrote."""

    pattern: str
    cause: str
    cure: str


# The first that fits is told: without a network, pip also says "No matching distribution".
KNOWN = (
    Known(
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "The package index showed a certificate that this machine does not trust.",
        "Behind a proxy, name its certificate: make env PIP_CERT=/path/to/certificate.pem",
    ),
    Known(
        r"Failed to establish|NewConnectionError|ProxyError|Network is unreachable|timed out"
        r"|Temporary failure in name resolution|nodename nor servname|Connection refused",
        "The package index did not answer.",
        "Look at the network; PIP_INDEX_URL names a mirror, HTTPS_PROXY a proxy. Then: make env",
    ),
    Known(
        r"No space left on device|Disk quota exceeded",
        "The disk is full.",
        "PyTorch with CUDA takes several GB, its CPU build 1 GB. TMPDIR and PIP_CACHE_DIR name "
        "another disk for pip's own files. Then: make env",
    ),
    Known(
        r"Permission denied|Errno 13",
        "A folder cannot be written to.",
        "Name a folder of your own: make env VENV=/path/to/environment",
    ),
    Known(
        r"ensurepip is not available|No module named '?(ensurepip|venv)",
        "This Python came without its modules venv and ensurepip.",
        "On Debian and Ubuntu: apt install python3-venv. Then: make env",
    ),
    Known(
        r"No matching distribution found",
        "The package index has no such version for this Python and machine.",
        "If PIP_INDEX_URL names a mirror, it may be behind: try without it. Then: make env",
    ),
)
UNKNOWN = Known("", "This is not a failure that we know.", "Mend what it says. Then: make env")


def say(text):
    print(text, flush=True)


def call(command, log):
    """Run `command`; if it fails, raise a Failure that tells the cause by what `log` says."""
    done = subprocess.run([str(part) for part in command], cwd=str(ROOT), stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise explained(log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")


def call_quietly(command):
    """Run `command`; if it fails, raise a Failure that tells the cause by what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=str(ROOT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise explained(done.stdout.decode("utf-8", "replace"))


def explained(text):
    known = next((known for known in KNOWN if re.search(known.pattern, text)), UNKNOWN)
    lines = [re.sub(r"^\S+T\S+,\d+ ", "", line).strip() for line in text.splitlines()]
    lines = list(dict.fromkeys(line for line in lines if line))
    told = [line for line in lines if line.lower().startswith("error")] or lines
    return Failure("\n       ".join([known.cause, *told[-6:]]), known.cure)


def version_of(python):
    """(major, minor, micro) of a Python command, or None if it does not run."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    return tuple(int(part) for part in done.stdout.split()) if done.returncode == 0 else None


def fits(version):
    return version is not None and OLDEST <= version[:2] <= NEWEST


def spell(version):
    return ".".join(str(part) for part in version) if version else "no Python that runs"


def find_python(asked):
    """The Python to build on: the one that was asked for, or the first candidate that fits."""
    wanted = f"A Python from {spell(OLDEST)} to {spell(NEWEST)} is needed"
    if asked:
        seen = version_of(asked)
        if not fits(seen):
            raise Failure(
                f"{wanted}. PYTHON={asked} was asked for, and is {spell(seen)}.",
                "Name another, as in: make env PYTHON=/path/to/python3.11 (or leave PYTHON out)",
            )
        return asked
    seen = {command: version_of(command) for command in CANDIDATES}
    for command, version in seen.items():
        if fits(version):
            return command
    found = [f"{command} is {spell(version)}" for command, version in seen.items() if version]
    raise Failure(
        f"{wanted}. Seen here: {', '.join(found)}.",
        "Install Python 3.11, or name one, as in: make env PYTHON=/path/to/python3.11",
    )


def has_pip(python):
    command = [str(python), "-c", "import pip"]
    return version_of(python) is not None and subprocess.run(command).returncode == 0


def is_other_than(python, asked):
    """Was a Python asked for of another release than the environment's?"""
    return bool(asked) and (version_of(asked) or ())[:2] != (version_of(python) or ())[:2]


def make_folder(folder, asked, moved):
    """Step 1: a Python of the environment's own, with pip. Returns its path."""
    python = folder / "bin" / "python"
    span = f"{spell(OLDEST)} to {spell(NEWEST)}"
    if (folder / "conda-meta").is_dir():
        say(f"      the conda environment {folder}")
        if not fits(version_of(python)):
            raise Failure(
                f"The active conda environment has Python {spell(version_of(python))}; one from "
                f"{span} is needed.",
                "conda env create --file environment.yml && conda activate allhands",
            )
        return python
    is_venv = (folder / "pyvenv.cfg").is_file()
    if folder.exists() and not is_venv and any(folder.iterdir()):
        raise Failure(
            f"{folder} was asked for, and is a folder of other things.",
            "Name another: make env VENV=/path/to/environment",
        )
    clear = moved or is_other_than(python, asked)  # in a moved one, scripts name the old place
    if is_venv and not clear and version_of(python) and not fits(version_of(python)):
        raise Failure(
            f"{folder} has Python {spell(version_of(python))}; one from {span} is needed.",
            f"rm -r {folder}, then: make env",
        )
    if clear or not has_pip(python):
        base = find_python(asked)
        say(f"      {base} ({spell(version_of(base))}) makes {folder}")
        call_quietly([base, "-m", "venv", *(["--clear"] if clear and is_venv else []), folder])
    return python


def definition(folder):
    """What the stamp holds: the place, and a digest of the files that define the environment."""
    digest = hashlib.sha256()
    for name in DEFINED_BY:
        digest.update((ROOT / name).read_bytes())
    return [str(folder), str(ROOT), digest.hexdigest()]


def install(folder, python, torch_index):
    """Step 2: everything that pyproject.toml pins, and the project itself."""
    log = folder / "allhands-pip.log"
    if log.exists():
        log.unlink()
    pip = [python, "-m", "pip", "install", "--no-input", "--log", log]
    has_torch = any(folder.glob("lib/python3*/site-packages/torch"))
    if torch_index:
        torch = re.search(r'"(torch==[^"]+)"', (ROOT / "pyproject.toml").read_text("utf-8")).group(
            1
        )
        say(f"      {torch} from {torch_index}")
        call([*pip, "--no-deps", "--index-url", torch_index, torch], log)
    elif sys.platform == "linux" and not has_torch and not Path("/proc/driver/nvidia").exists():
        say("      No NVIDIA driver is seen here. PyPI's PyTorch for Linux is a CUDA build of")
        say(f"      several GB; the small CPU build: make env TORCH_INDEX={CPU_INDEX}")
    call([*pip, *PROJECT], log)


def set_up(folder, asked, torch_index):
    """All steps, or none if the environment is as it should be. Returns the exit status."""
    python, stamp = folder / "bin" / "python", folder / "allhands.stamp"
    stamped = stamp.read_text("utf-8").splitlines() if stamp.is_file() else []
    fresh = stamped == definition(folder) and version_of(python) is not None
    step = "check"
    try:
        if not fresh or is_other_than(python, asked):
            step = "1 of 3, Python"
            say(f"[env] {step}")
            python = make_folder(folder, asked, moved=bool(stamped) and stamped[0] != str(folder))
            if stamp.exists():
                stamp.unlink()
            step = "2 of 3, install"
            say(f"[env] {step} (minutes, the first time)")
            install(folder, python, torch_index)
            step = "3 of 3, check"
            say(f"[env] {step}")
            call_quietly([python, "-c", IMPORTS])
        call_quietly([python, "-c", NO_INTRUDER])
        if step != "check":
            stamp.write_text("\n".join(definition(folder)) + "\n", "utf-8")
    except (Failure, OSError) as error:
        failure = error if isinstance(error, Failure) else explained(str(error))
        if step != "1 of 3, Python" and stamp.exists():
            stamp.unlink()  # so that the next `make env` installs again
        say(f"\n[env] This step failed: {step}.")
        say(f"cause: {failure.cause}")
        say(f"cure:  {failure.cure}")
        return 1
    say(f"[env] {folder} is {'up to date' if step == 'check' else 'ready'}.")
    return 0


def main():
    parser = argparse.ArgumentParser(description="Makes the environment of All Hands.")
    parser.add_argument("folder", help="a virtual or conda environment, such as .venv")
    parser.add_argument("--python", default="", help="the Python to make it from")
    parser.add_argument("--torch-index", default="", help="a package index to take PyTorch from")
    asked = parser.parse_args()
    return set_up(Path(os.path.abspath(asked.folder)), asked.python, asked.torch_index)


if __name__ == "__main__":
    sys.exit(main())
