"""Open JupyterLab on the first notebook, with the course's own settings.

    python -m allhands.kit.start                # opens a browser where there is one
    python -m allhands.kit.start --no-browser   # prints the address
    python -m allhands.kit.start --port 9999

The settings are in handson/jupyter. They hide what is for instructors, and the
folder `src` with the solutions; they keep the Validate button.
Stop JupyterLab with Ctrl-C.
"""

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from allhands.labs import COURSE

PROJECT = COURSE.labs_file.parents[1]
SETTINGS = COURSE.labs_file.parent / "jupyter"
FIRST_PORT, N_PORTS = 8888, 50
NO_CLONE = (
    f"The notebooks or the settings in {SETTINGS} are missing: start from a clone of the project."
)
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def has_browser(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser can be opened: on Linux this needs a screen."""
    if not platform.startswith("linux"):
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def free_port(first: int, n_ports: int = N_PORTS) -> int:
    """The first free port from `first` on, on this machine. Raises OSError if there is none."""
    for port in range(first, min(first + n_ports, 65536)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(
        f"No port is free from {first} on ({n_ports} tried). Give another one with --port."
    )


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """What JupyterLab and its kernels see, but for the token."""
    paths = [str(SETTINGS), *filter(None, [base.get("JUPYTER_CONFIG_PATH")])]
    programs = [str(Path(sys.executable).parent), base.get("PATH", "")]
    return {
        **dict.fromkeys(ONE_THREAD, "1"),
        **base,
        "JUPYTER_CONFIG_PATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join(programs),
    }


def settings(page: str, *, root_user: bool) -> list[str]:
    """The command line of JupyterLab as this course wants it, but for where it listens."""
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={PROJECT}",
        f"--LabApp.default_url={page}",
        f"--LabApp.workspaces_dir={PROJECT / 'build' / 'jupyter'}",  # its own tabs
        "--ServerApp.log_level=WARN",
        *(["--allow-root"] if root_user else []),
    ]


def command(page: str, port: int, *, browser: bool, root_user: bool) -> list[str]:
    """The command line of JupyterLab on this machine."""
    return [
        *settings(page, root_user=root_user),
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        *([] if browser else ["--no-browser"]),
    ]


def first_page() -> str | None:
    """The address of the first notebook, after the host; None where there is no clone."""
    notebooks = (COURSE.notebooks / f"{stem}.ipynb" for stem in COURSE.labs())
    first = next((path for path in notebooks if path.exists()), None)
    if not SETTINGS.is_dir() or first is None:
        return None
    return f"/lab/tree/{first.relative_to(PROJECT).as_posix()}"


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.add_argument("--port", type=int, default=FIRST_PORT, help=f"default: {FIRST_PORT}")
    asked = parser.parse_args(arguments)
    page = first_page()
    if page is None:
        print(NO_CLONE, file=sys.stderr)
        return 1
    try:
        port = free_port(asked.port)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(16)
    browser = has_browser(os.environ) and not asked.no_browser
    print(f"JupyterLab starts. Its address is\n\n    http://127.0.0.1:{port}{page}?token={token}\n")
    if port != asked.port:
        print(f"(Port {asked.port} is taken, so it is {port}.)")
    if not browser:
        print(
            "Open it in a browser here. On another machine, first bring the port over:\n\n"
            f"    ssh -L {port}:127.0.0.1:{port} THIS_MACHINE\n"
        )
    print("Ctrl-C stops it.", flush=True)
    line = command(page, port, browser=browser, root_user=is_root())
    # Not as an argument: command lines are public.
    return _run(line, {**environment(os.environ), "JUPYTER_TOKEN": token})


def _run(line: list[str], variables: dict[str, str]) -> int:
    """Run JupyterLab until it ends; Ctrl-C and SIGTERM end it and its kernels."""
    server = subprocess.Popen(line, env=variables, cwd=PROJECT, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while True:
        try:
            code = server.wait()
            break
        except (
            KeyboardInterrupt
        ):  # the terminal sent it to JupyterLab too, which wants a second one
            server.terminate()
    if code not in (0, -signal.SIGTERM, -signal.SIGINT):
        print(f"JupyterLab ended with code {code}; the lines above say why.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
