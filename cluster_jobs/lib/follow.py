"""How does one follow a job? Its place in the queue, its log as it grows, and the time it has used.

`follow` reads the job's note (NAME=value, the last one of a name counts) and its log, and asks the
scheduler seldom. It prints whole lines and never moves the cursor, so that it reads the same on a
terminal and in a file. A line of its own is printed when the state changes, and now and then while
nothing else happens.

Python 3.6 or later, no package.
"""

import os
import sys
import time

from schedulers import state_of
from sites import clock

POLL_S = float(os.environ.get("ALLHANDS_POLL_S", "2"))
ASK_MOST_S = 15 * POLL_S  # a scheduler is asked at least this often, and not much more
QUIET_S = 300  # after so long without a word, the state is said again
MISSED_MOST = 10  # so many times in a row unknown to the scheduler: gone. Shared disks are late


class Progress:
    """Says the state when it changes, and the time that a part has used, a tenth at a time."""

    def __init__(self, job):
        self.limit_s = job.limit_s
        self.said, self.said_s, self.mark = None, time.time(), None

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
        self.said_s = time.time()

    def state(self, state, reason):
        text = f"{state} ({reason})" if reason else state
        if text != self.said:
            self.say(text)
        elif state != "Running" and time.time() - self.said_s >= QUIET_S:
            self.say(f"still {text}")
        self.said = text

    def used(self, note):
        """note: the job's; ALLHANDS_STARTED is the second at which its part began."""
        if not note.get("ALLHANDS_STARTED", "").isdigit():
            return
        start_s = int(note["ALLHANDS_STARTED"])
        used_s = max(0, int(time.time()) - start_s)
        every_s = max(60, self.limit_s // 10)
        mark = (start_s, used_s // every_s)
        if self.mark is not None and mark > self.mark and mark[1] > 0:
            self.say(f"Running: {clock(used_s)} of {clock(self.limit_s)}")
        self.mark = mark


def read_note(base):
    with open(base + ".job", encoding="utf-8", errors="replace") as lines:
        pairs = (line.strip().partition("=") for line in lines)
        return {name: value for name, _, value in pairs}


def print_from(path, start, last=False):
    """Print the whole lines of a file from byte `start` on; return how many bytes they had.

    last: what comes after the last line end too.
    """
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as log:
        log.seek(start)
        new = log.read()
    new = new if last else new[: new.rfind(b"\n") + 1]
    sys.stdout.flush()
    sys.stdout.buffer.write(new)  # as they are: a log may hold any bytes
    sys.stdout.buffer.flush()
    return len(new)


def follow(job, stop):
    """Print the log as it grows, until the job says that it ended; return its exit code.

    stop.signal: the signal that asked to stop following, or None.
    """
    progress, seen, missed = Progress(job), 0, 0
    asked_s, wait_s, known = 0.0, POLL_S, None
    while True:
        note = read_note(job.base)
        ended = "ALLHANDS_ENDED" in note
        new = print_from(job.base + ".log", seen, last=ended)
        seen += new
        if ended:
            return int(note["ALLHANDS_ENDED"])
        job_id = note["ALLHANDS_JOB_ID"]
        if stop.signal is not None:
            cancel = job.scheduler.cancel.format(job_id)
            print(f"No longer following. Job {job_id} goes on; to end it: {cancel}")
            return 128 + stop.signal
        if job_id != known or time.time() - asked_s >= wait_s:
            found = state_of(job.scheduler, job_id)
            asked_s, changed = time.time(), found is None or progress.said is None
            wait_s = POLL_S if changed or job_id != known else min(1.5 * wait_s, ASK_MOST_S)
            missed, known = (0 if found else missed + 1), job_id
            if found:
                progress.state(*found)
        progress.used(note)
        if missed == MISSED_MOST:
            print(
                f"The scheduler no longer knows job {job_id}, and the job did not say how it "
                f"ended. Look into {job.base}.out and {job.base}.log."
            )
            return 1
        if stop.signal is None:
            time.sleep(POLL_S)
