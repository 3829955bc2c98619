"""JupyterLab on a compute node: how does one person reach it, nobody else, and nothing stays?

    python -m allhands.kit.serve --run runs/jupyter/1 --stop-after 6900
    python -m allhands.kit.serve --run runs/jupyter/1 --listen node --login login1

What it does, in this order:

1. It makes two private folders (mode 0700) for all that JupyterLab writes for itself: --run, and a
   short path on this node's own disk, for sockets. Kernels are reached through sockets there too.
2. It makes a token, and gives it to JupyterLab in a private file there. It is in no argument, in no
   log and in no environment: kernels and terminals inherit that, and jobs that are sent from them.
3. JupyterLab listens where --listen says (`reach.WAYS`), and never on all addresses.
4. Is the answer 403 without the token, and 200 with it? If not, it ends again.
5. It writes --run/connect.txt (mode 0600): a command and an address. The log gets its path.
6. It waits: for a signal (scancel, qdel, Ctrl-C), for --stop-after, or until JupyterLab ends itself
   because it had no open tab for --idle minutes. Then it removes both folders.

What the site's file sets: ALLHANDS_JUPYTER is --listen, ALLHANDS_LOGIN is --login.
Exit codes: 0 ended as asked; 1 JupyterLab did not start, or failed; 2 refused, in a sentence.
"""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from allhands.kit import start
from allhands.kit.reach import (
    WAYS,
    Place,
    Refusal,
    connection_text,
    local_folder,
    place_for,
    private_folder,
    write_private,
)

READY_S = 300  # from a shared disk the first start of a day is slow
POLITE_S = 15  # what JupyterLab gets to end its kernels
PR_SET_PDEATHSIG = 1


def environment(run: Path, local: Path, secret: Path, base: Mapping[str, str]) -> dict[str, str]:
    """As `start.environment`; what JupyterLab keeps lies in the two folders, nothing in the home.

    So a person's own settings (an empty token, say) do not count here. secret: the token's file.
    """
    not_theirs = ("JUPYTER_PORT", "JUPYTER_TOKEN", "ALLHANDS_LOG")
    kept = {k: v for k, v in base.items() if k not in not_theirs}
    return {
        **start.environment(kept),
        "JUPYTER_TOKEN_FILE": str(secret),
        "JUPYTER_CONFIG_DIR": str(run / "config"),
        "JUPYTER_DATA_DIR": str(run / "data"),
        "JUPYTER_RUNTIME_DIR": str(local),
    }


def command(place: Place, page: str, idle_s: float) -> list[str]:
    """JupyterLab with the course's settings; it ends itself after `idle_s` without use.

    An open tab counts as use, and so does a kernel that computes. A kernel or a terminal that
    rests, and that no tab shows, is ended after `idle_s`: JupyterLab stays as long as it has one.
    """
    seconds = round(idle_s)
    return [
        *start.settings(page, root_user=start.is_root()),
        *place.options(),
        "--no-browser",
        f"--ServerApp.shutdown_no_activity_timeout={seconds}",
        f"--MappingKernelManager.cull_idle_timeout={seconds}",
        "--MappingKernelManager.cull_interval=60",
        "--KernelManager.transport=ipc",
        f"--TerminalManager.cull_inactive_timeout={seconds}",
    ]


# ---- while it runs ----


def ready(place: Place, local: Path, server: subprocess.Popen, token: str) -> Place | None:
    """Where JupyterLab answers now, or None: not yet. Raises Refusal if it answers to anybody."""
    for path in local.glob("jpserver-*.json"):
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["pid"] != server.pid:
                continue
            place = replace(place, port=found["port"] or 0)
            without, with_token = place.status(), place.status(token)
            if (without, with_token) != (403, 200):
                raise Refusal(
                    f"JupyterLab answered {without} without the token and {with_token} with it, "
                    "where 403 and 200 belong. It was ended: anybody might have used it. Look for "
                    "settings of Jupyter beside the course's: jupyter --paths"
                )
            return place
    return None


def say(text: str) -> None:
    """Into the job's log, also when a job is cancelled and the `tee` that writes it has ended."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the text fails again at Python's end
        if log := os.environ.get("ALLHANDS_LOG"):
            with contextlib.suppress(OSError), open(log, "a") as file:
                print(text, file=file)


def end_with_parent() -> None:
    """This process ends when its parent does, even if that is killed (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(server: subprocess.Popen) -> None:
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(POLITE_S)
    if server.poll() is None:
        server.kill()
    server.wait()


def watch(server: subprocess.Popen, told: list[int], end_s: float, step: Callable) -> str:
    """Call `step` until the server or the time ends, or a signal came; return which."""
    while True:
        if told:
            return f"it was told to ({signal.Signals(told[0]).name})"
        if time.monotonic() > end_s:
            return "its time is over"
        if server.poll() is not None:
            return "server"
        step()
        time.sleep(0.2)


def serve(asked: argparse.Namespace, page: str, told: list[int]) -> int:
    """Run JupyterLab until it must end; leave nothing."""
    token, connect = secrets.token_urlsafe(32), asked.run / "connect.txt"
    clock = datetime.now() + timedelta(seconds=asked.stop_after)
    ends = f"It ends at {clock:%H:%M}, or {asked.idle:g} minutes after its last tab is closed."
    begun_s = time.monotonic()
    login = None if asked.listen == "here" else asked.login
    found: list[Place] = []
    run = server = None
    local = local_folder()
    try:
        place = place_for(asked.listen, local)
        run, secret = private_folder(asked.run), local / "token"
        write_private(secret, token)
        server = subprocess.Popen(
            command(place, page, 60 * asked.idle),
            env=environment(run, local, secret, os.environ),
            cwd=start.PROJECT,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )

        def until_ready() -> None:
            if not found and (now := ready(place, local, server, token)):
                found.append(now)
                write_private(connect, connection_text(now, page, token, login, ends))
                say(f"JupyterLab is up on {socket.gethostname()}: 403 without its token. {ends}")
                say(f"How to reach it stands in a file that only you can read: {connect}")
            if not found and time.monotonic() > begun_s + READY_S:
                raise Refusal(f"JupyterLab did not answer within {READY_S} s.")

        why = watch(server, told, begun_s + asked.stop_after, until_ready)
    finally:
        if server is not None:
            end(server)
        for folder in filter(None, (run, local)):
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                say(f"Could not remove {folder}: please do. Its token is of no use any more.")
    if why != "server":
        say(f"JupyterLab was ended: {why}. Its folder is removed.")
        return 0 if found else 1
    if found and server.returncode == 0:
        say(f"JupyterLab ended: by its menu, or after {asked.idle:g} minutes without a tab.")
        return 0
    say(f"JupyterLab ended with code {server.returncode}; the lines above say why.")
    return 1


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    base = os.environ
    login = base.get("ALLHANDS_LOGIN") or base.get("SLURM_SUBMIT_HOST") or base.get("PBS_O_HOST")
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.serve", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--run", type=Path, required=True, help="a private folder, made anew")
    parser.add_argument(
        "--listen",
        metavar="|".join(WAYS),
        default=base.get("ALLHANDS_JUPYTER") or "socket",
        help="; ".join(f"{way}: {means}" for way, means in WAYS.items()),
    )
    parser.add_argument("--login", default=login or "", help="the login node, as ssh knows it")
    parser.add_argument("--idle", type=float, default=30, help="minutes without a tab (30)")
    parser.add_argument(
        "--stop-after", type=float, default=6900, metavar="S", help="seconds (default: 6900)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    asked = read_arguments(arguments)
    asked.run = asked.run.absolute()
    page = start.first_page()
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: told.append(number))
    os.umask(0o077)
    try:
        if page is None:
            raise Refusal(start.NO_CLONE)
        return serve(asked, page, told)
    except Refusal as refusal:
        say(str(refusal))
        return 2
    except OSError as error:  # a full disk, say
        say(f"JupyterLab was ended, and its folders removed: {error}.")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
