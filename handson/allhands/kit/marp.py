"""How does Markdown become HTML, PDF, PPTX and pictures? Marp CLI and Chromium, and what they need.

Marp comes from npm into slides/node_modules, at the versions of slides/package-lock.json; after
that nothing is fetched. A Chromium makes PDF, PPTX and pictures, and measures the pages:
CHROME_PATH says where it is, or it is found by its name. What is started here ends here.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from allhands.kit.deck import SLIDES, DeckError

NODE_MAJOR = 18  # the oldest that Marp CLI 4 runs on
CHROMIUMS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)  # fmt: skip
MODULES = SLIDES / "node_modules"
INSTALLED = MODULES / ".allhands-lock"  # the lock file's digest at the last install
FORMATS = {"html": [], "pdf": ["--pdf", "--pdf-outlines"], "pptx": ["--pptx"]}
AT_ONCE = min(2, os.cpu_count() or 1)  # processes of Marp, each with a Chromium
LIMIT_S = 60.0  # for one deck in one format; 20 pages take about 8 s as PPTX


def chromium() -> str | None:
    """The path of a Chromium or Chrome: CHROME_PATH, or the first of the known names."""
    if given := os.environ.get("CHROME_PATH"):
        return shutil.which(given)
    return next((found for name in CHROMIUMS if (found := shutil.which(name))), None)


def missing() -> list[str]:
    """One sentence for each thing that is not here, and how to get it. Installs nothing."""
    sentences = []
    node = shutil.which("node")
    if node is None:
        sentences.append(
            f"Node.js was not found: install Node.js {NODE_MAJOR} or later (Debian: nodejs npm)."
        )
    elif (major := _node_major(node)) < NODE_MAJOR:
        sentences.append(
            f"{node} is Node.js {major}, and Marp needs {NODE_MAJOR} or later: install a newer one."
        )
    elif not _is_installed() and shutil.which("npm") is None:
        sentences.append("npm was not found: install it beside Node.js (Debian: npm).")
    if chromium() is None:
        asked = os.environ.get("CHROME_PATH")
        sentences.append(
            f"CHROME_PATH is {asked}, which is no program: correct it, or unset it."
            if asked
            else "Chromium was not found: install it (Debian: chromium), or set CHROME_PATH."
        )
    return sentences


def require() -> None:
    """Raise DeckError with what is missing; install Marp from npm if it is not yet here."""
    if sentences := missing():
        raise DeckError(" ".join(sentences))
    if _is_installed():
        return
    npm = [
        shutil.which("npm"), "ci", "--no-audit", "--no-fund", "--loglevel=error",
        "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
    ]  # fmt: skip
    done = subprocess.run(npm, cwd=SLIDES, env=_environ(), capture_output=True, text=True)
    if done.returncode:
        raise DeckError(
            f"`npm ci` in {SLIDES} failed. It fetches Marp once, so it needs the network, or a "
            "registry of npm that `npm config set registry` names. It said: "
            f"{done.stderr.strip()[:300]}"
        )
    INSTALLED.write_text(_lock_digest())


def convert(folder: Path, names: Sequence[str], format: str) -> None:
    """Write <name>.<format> beside each <name>.md in `folder`; format is html, pdf or pptx.

    Raises DeckError with what Marp said.
    """
    at_once = 1 if format == "html" else AT_ONCE
    _marp(folder, names, FORMATS[format], at_once)


def pictures(folder: Path, names: Sequence[str]) -> None:
    """Write <name>.001.png, <name>.002.png, ... beside each <name>.md in `folder`."""
    for name in names:
        for old in folder.glob(f"{name}.[0-9][0-9][0-9].png"):
            old.unlink()
    _marp(folder, names, ["--images", "png"], AT_ONCE)


def measure(folder: Path, names: Sequence[str]) -> dict[str, dict]:
    """What Chromium sees on the pages of <name>.html: see slides/measure.mjs, by deck."""
    files = [str(folder / f"{name}.html") for name in names]
    command = ["node", str(SLIDES / "measure.mjs"), chromium(), *files]
    (said,) = _run([command], folder, LIMIT_S + 10 * len(names))
    return dict(zip(names, json.loads(said), strict=True))


def _marp(folder: Path, names: Sequence[str], options: list[str], at_once: int) -> None:
    command = [
        "node", str(MODULES / "@marp-team" / "marp-cli" / "marp-cli.js"),
        "--config-file", str(SLIDES / "marp.json"), "--theme-set", str(folder / "theme.css"),
        "--allow-local-files", "--no-stdin", "--no-parallel", *options,
    ]  # fmt: skip
    # Decks that share a Chromium go one after the other: pictures of two at once can wait for
    # each other for ever. Each process has a Chromium of its own.
    shares = [share for n in range(at_once) if (share := names[n::at_once])]
    commands = [[*command, *(f"{name}.md" for name in share)] for share in shares]
    _run(commands, folder, LIMIT_S * (1 + len(names)))


def _run(commands: Sequence[list[str]], folder: Path, limit_s: float) -> list[str]:
    """Run programs side by side; returns what each wrote on stdout. All have ended afterwards."""
    program = Path(commands[0][1]).name
    processes, said, ends_s = [], [], time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profiles:
        try:
            for command in commands:
                environ = {**_environ(), "TMPDIR": tempfile.mkdtemp(dir=profiles)}
                processes.append(
                    subprocess.Popen(
                        command, cwd=folder, env=environ, text=True, start_new_session=True,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    )
                )  # fmt: skip
            for process in processes:
                said.append(process.communicate(timeout=max(0.0, ends_s - time.monotonic())))
        except BaseException as error:  # Chromium ends when its pipe to Node is closed
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise DeckError(
                    f"{program} had not ended after {limit_s:g} s and was stopped. "
                    "Build fewer decks at once, and see which one takes so long."
                ) from error
            raise
    for process, (stdout, stderr) in zip(processes, said, strict=True):
        if process.returncode:
            words = (stderr or stdout).strip()[-1500:]
            raise DeckError(f"{program} ended with {process.returncode}. It said: {words}")
    return [stdout for stdout, _ in said]


def _is_installed() -> bool:
    return INSTALLED.exists() and INSTALLED.read_text() == _lock_digest()


def _lock_digest() -> str:
    return hashlib.sha256((SLIDES / "package-lock.json").read_bytes()).hexdigest()


def _environ() -> dict[str, str]:
    found = {**os.environ, "PUPPETEER_SKIP_DOWNLOAD": "1", "CHROME_PATH": chromium() or ""}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        found["CHROME_NO_SANDBOX"] = "1"  # Chromium's own sandbox refuses to run as root
    return found


def _node_major(node: str) -> int:
    """The first number of its version; 0 if it does not say one."""
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.", said)
    return int(found[1]) if found else 0
