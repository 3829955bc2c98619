"""Can this folder be written, how large is its disk, and does its clock agree with this one?

    python -I -S look_folder.py FOLDER     # one line of JSON

A program of its own, because a file system whose server is gone stops whoever touches it: the
doctor waits for it a while, and goes on. Standard library only.
"""

import contextlib
import json
import os
import sys
import tempfile
import time

BLOCK = b"\0" * 2**20


def look(folder: str) -> dict:
    """What `allhands.doctor.machine.Folder` says, as a dictionary."""
    seen: dict = {"type": mount_type(folder), "error": ""}
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        seen["total_bytes"] = disk.f_blocks * disk.f_frsize
        seen["free_bytes"] = disk.f_bavail * disk.f_frsize
    path = ""
    try:
        before_s, start_s = time.time(), time.perf_counter()
        file, path = tempfile.mkstemp(prefix=".allhands-doctor-", dir=folder)
        with os.fdopen(file, "wb", buffering=0) as target:
            if target.write(BLOCK) != len(BLOCK):
                raise OSError(28, os.strerror(28))
            os.fsync(target.fileno())
            seen["write_s"] = time.perf_counter() - start_s
            seen["ahead_s"] = outside(os.fstat(target.fileno()).st_mtime, before_s, time.time())
    except OSError as error:
        seen["error"] = error.strerror or str(error)
    finally:
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)
    return seen


def outside(value: float, low: float, high: float) -> float:
    """How far a value lies above (positive) or below (negative) an interval; 0 inside."""
    return max(0.0, value - high) + min(0.0, value - low)


def mount_type(folder: str) -> str:
    """The type of the file system that a folder is on (Linux; else empty)."""
    found, longest = "", -1
    with contextlib.suppress(OSError), open("/proc/self/mounts") as mounts:
        path = os.path.realpath(folder)
        for line in mounts:
            _, at, kind = line.split(" ")[:3]
            at = at.replace("\\040", " ")
            inside = path == at or path.startswith(at.rstrip("/") + "/")
            if inside and len(at) >= longest:  # a later mount hides an earlier one
                found, longest = kind, len(at)
    return found


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
