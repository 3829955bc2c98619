"""How does a browser on this machine reach a JupyterLab that listens on a Unix socket?

    python -m allhands.kit.forward /tmp/allhands-lab-x/lab.sock --port 8888

What comes to the port of 127.0.0.1 goes to the socket and back, as with `ssh -L`, until Ctrl-C, or
until nothing listens on the socket any more. JupyterLab still asks for its token.
Exit codes: 0 ended by Ctrl-C; 1 JupyterLab has ended; 2 refused, in a sentence.
"""

import argparse
import asyncio
import contextlib
import socket
import sys
from pathlib import Path

from allhands.kit.reach import HERE_PORT

PIECE_BYTES = 2**16


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """All bytes, then the end of them: the other direction may go on."""
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()


async def forward(path: Path, port: int) -> None:
    """Until nothing listens at `path`. Raises OSError if the port is taken."""
    gone = asyncio.Event()

    async def joined(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.closing(sink):
            try:
                answer, question = await asyncio.open_unix_connection(path)
            except (FileNotFoundError, ConnectionRefusedError):
                gone.set()
                return
            # Cancelled is how asyncio ends what is still open; Python 3.11 would show a traceback.
            with contextlib.closing(question), contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(copy(source, question), copy(answer, sink))

    server = await asyncio.start_server(joined, "127.0.0.1", port)
    number = server.sockets[0].getsockname()[1]
    print(f"127.0.0.1:{number} leads to JupyterLab. Ctrl-C ends this.", flush=True)
    await gone.wait()
    server.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.forward", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("socket", type=Path, help="as connect.txt names it")
    parser.add_argument("--port", type=int, default=HERE_PORT, help=f"0: any ({HERE_PORT})")
    asked = parser.parse_args(arguments)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(asked.socket))
    except OSError as error:
        print(
            f"Nothing answers at {asked.socket} ({error.strerror or error}). If the job has ended, "
            "submit it again: each has its own connect.txt. Only the owner can open the socket.",
            file=sys.stderr,
        )
        return 2
    try:
        asyncio.run(forward(asked.socket, asked.port))
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        print(
            f"Port {asked.port} cannot be used here ({error.strerror}). Give another one with "
            "--port, and write it in the address too.",
            file=sys.stderr,
        )
        return 2
    print("JupyterLab has ended, and so does this.")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
