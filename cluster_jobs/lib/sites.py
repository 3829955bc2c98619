"""What does a site file say, and can the site do what is asked of it? Reads and asks only.

Every `refuse_...` raises `Refusal`, a sentence, or returns. A scheduler is asked where its command
is on this machine; no answer is no refusal. ALLHANDS_ASK=no: it is not asked.

    python3 cluster_jobs/lib/sites.py NAME      # the site's values as JSON

Python 3.6 or later, no package.
"""

import collections
import json
import os
import re
import shlex
import subprocess
import sys

from schedulers import SCHEDULERS, ask

JOBS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(JOBS)
FOLDER = os.path.join(JOBS, "sites")
SITE_NAMES = (
    "SCHEDULER LEVEL QUEUE_OPTION QUEUE ACCOUNT_OPTION ACCOUNT ACCOUNTS SHAPE_OPTION GPU_OPTION"
    " OPTIONS GPUS_PER_NODE NODES_MAX TIME_MAX ASK MODULES CONDA_ENV CONTAINER LAUNCHER NETWORK"
    " SCRATCH AGAIN PARTS_MAX JUPYTER LOGIN"
)

# A queue as the scheduler shows it; None: no limit, or it does not say.
Queue = collections.namedtuple("Queue", "name limit_s nodes")


class Refusal(Exception):
    """What was asked cannot work; the text says why, and what to do."""


# ---- reading ----


def path_of(name):
    return os.path.join(FOLDER, name + ".env")


def read_site(name):
    """The ALLHANDS_ values of sites/<name>.env as bash reads them, without the prefix."""
    path = path_of(name)
    shown = os.path.relpath(path, ROOT)
    if os.path.basename(name) != name or not os.path.exists(path):
        known = ", ".join(sorted(f[:-4] for f in os.listdir(FOLDER) if f.endswith(".env")))
        raise Refusal(
            f"There is no site '{name}'. Known: {known}. For your own: allhands site init, or copy "
            "one of them."
        )
    with open(path, encoding="utf-8", errors="replace", newline="") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith("\r\n"):
                raise Refusal(f"{shown} has line ends of Windows. Do: sed -i 's/\\r$//' {shown}")
            found = re.match(r"\s*ALLHANDS_(\w+)=", line)
            if found and found.group(1) not in SITE_NAMES.split():
                raise Refusal(
                    f"{shown}:{number}: ALLHANDS_{found.group(1)} is not a name that is known. "
                    "The names and what they mean are in sites/slurm-generic.env."
                )
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    script = 'set -ae; . "$1"; "$2" -c "$3"'
    reader = ["bash", "-c", script, "bash", path, sys.executable, show]
    ran = subprocess.run(reader, stdout=subprocess.PIPE)
    if ran.returncode != 0:
        raise Refusal(f"bash could not read {shown}. Its message is above this line.")
    values = json.loads(ran.stdout.decode().splitlines()[-1])
    site = {key[9:]: value for key, value in values.items() if key.startswith("ALLHANDS_")}
    if site.get("SCHEDULER") not in ("none", *SCHEDULERS):
        known = ", ".join(SCHEDULERS)
        raise Refusal(f"{shown} must set ALLHANDS_SCHEDULER to none or one of {known}.")
    for what in ("GPUS_PER_NODE", "NODES_MAX"):
        if not re.fullmatch(r"\d*", site.get(what, "")):
            raise Refusal(
                f"{shown}: ALLHANDS_{what} is '{site[what]}'. Write a number, or leave it."
            )
    return collections.defaultdict(str, site)


def default_site():
    """$ALLHANDS_SITE, else the name in sites/default, else local."""
    chosen = os.path.join(FOLDER, "default")
    if os.environ.get("ALLHANDS_SITE") or not os.path.exists(chosen):
        return os.environ.get("ALLHANDS_SITE") or "local"
    with open(chosen) as lines:
        return lines.readline().strip()


def seconds(text):
    """A time limit HH:MM:SS in seconds. Schedulers read other forms differently: refused."""
    found = re.fullmatch(r"(\d{1,4}):([0-5]\d):([0-5]\d)", text, re.ASCII)
    if not found or not re.search("[1-9]", text):
        raise Refusal(f"The time '{text}' was not understood. Write it like 00:30:00 (h:min:s).")
    hours, minutes, rest = map(int, found.groups())
    return 3600 * hours + 60 * minutes + rest


def clock(limit_s):
    """Seconds as H:MM:SS."""
    return f"{limit_s // 3600:02d}:{limit_s // 60 % 60:02d}:{limit_s % 60:02d}"


# ---- the site's own options ----


def site_options(name, site, needs):
    """Queue, account, shape, GPU and other options as words; an option wants its value."""
    words = []
    for what in ("QUEUE", "ACCOUNT"):
        option, value = site[what + "_OPTION"], site[what]
        if option and not value:
            raise Refusal(
                f"Site '{name}' wants the {what.lower()} as {option}, but ALLHANDS_{what} is "
                f"empty. Write it into cluster_jobs/sites/{name}.env, or export it. If your site "
                f"has none, make ALLHANDS_{what}_OPTION empty there."
            )
        words += shlex.split(option.replace("{}", value))
    for what in ("SHAPE_OPTION", "GPU_OPTION" if needs["gpus_per_node"] else "", "OPTIONS"):
        try:
            words += shlex.split(site[what].format(**needs)) if what else []
        except (KeyError, IndexError, ValueError):
            known = ", ".join("{" + need + "}" for need in sorted(needs))
            raise Refusal(
                f"Site '{name}': '{site[what]}' was not understood. Names in braces may be: "
                f"{known}."
            ) from None
    return words


# ---- what the site has ----


def refuse_too_much(name, site, needs, limit_s):
    """More GPUs than a node has, more nodes or a longer time than the site gives."""
    ranks, nodes, gpus = needs["ranks"], needs["nodes"], int(site["GPUS_PER_NODE"] or 0)
    if gpus and needs["gpus_per_node"] > gpus:
        per_node = max(n for n in range(1, gpus + 1) if ranks % n == 0)
        raise Refusal(
            f"{needs['ranks_per_node']} ranks on a node want {needs['gpus_per_node']} GPUs, and a "
            f"node of site '{name}' has {gpus}. Spread them: --nodes {ranks // per_node} "
            f"--ranks {ranks}. Or without GPUs: ALLHANDS_LEVEL=cpu."
        )
    if site["NODES_MAX"] and nodes > int(site["NODES_MAX"]):
        raise Refusal(
            f"{nodes} nodes were asked for; site '{name}' gives at most {site['NODES_MAX']} "
            "(ALLHANDS_NODES_MAX). Give a smaller --nodes."
        )
    if site["TIME_MAX"] and limit_s > seconds(site["TIME_MAX"]):
        raise Refusal(
            f"{clock(limit_s)} was asked for; site '{name}' gives at most {site['TIME_MAX']} "
            "(ALLHANDS_TIME_MAX). Give a shorter --time: a training goes on in the next part."
        )


def queues_of(scheduler):
    """{name: Queue} of what the scheduler lists; {} if it is not here or does not say."""
    text = ask(SCHEDULERS[scheduler].queues.split()) if SCHEDULERS[scheduler].queues else None
    if scheduler == "pbs":  # a table: its head ends with a line of dashes
        text = re.sub(r"\A(.*\n)*?-{3}.*\n", "", text or "") if "\n---" in (text or "") else ""
    found = {}
    for line in (text or "").splitlines():
        words = line.strip().split("|") if scheduler == "slurm" else line.split()[:1]
        if len(words) == 3:  # one line for each kind of nodes of a partition
            before = found[words[0]].nodes if words[0] in found else 0
            found[words[0]] = Queue(words[0], slurm_seconds(words[1]), before + int(words[2]))
        elif words:
            found[words[0]] = Queue(words[0], None, None)
    return found


def slurm_seconds(text):
    """D-HH:MM:SS, HH:MM:SS or MM:SS in seconds; None for `infinite` and the like."""
    found = re.match(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$", text)
    if not found:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return 86400 * days + 3600 * hours + 60 * minutes + rest


def pbs_queue(name):
    """The Queue with the limits that `qstat -Q -f` shows."""
    text = ask(["qstat", "-Q", "-f", name]) or ""
    time = re.search(r"resources_max\.walltime = (\d+:\d\d:\d\d)", text)
    nodes = re.search(r"resources_max\.(?:nodect|nodes) = (\d+)", text)
    limit_s = seconds(time.group(1)) if time and re.search("[1-9]", time.group(1)) else None
    return Queue(name, limit_s, int(nodes.group(1)) if nodes else None)


def refuse_unknown_queue(name, site, needs, limit_s):
    """A queue that the scheduler does not list, or that has fewer nodes or less time."""
    wanted = site["QUEUE"]
    known = queues_of(site["SCHEDULER"]) if wanted and site["QUEUE_OPTION"] else {}
    if not known:
        return
    for queue in wanted.split(",") if site["SCHEDULER"] == "slurm" else [wanted.split("@")[0]]:
        if queue not in known:
            raise Refusal(
                f"Site '{name}' has no queue '{queue}'. Known: {', '.join(sorted(known))}. Write "
                f"one of them into cluster_jobs/sites/{name}.env, or export ALLHANDS_QUEUE."
            )
        limits = pbs_queue(queue) if site["SCHEDULER"] == "pbs" else known[queue]
        if limits.nodes is not None and needs["nodes"] > limits.nodes:
            raise Refusal(
                f"{needs['nodes']} nodes were asked for; queue '{queue}' has {limits.nodes}. Give "
                "a smaller --nodes, or another queue: export ALLHANDS_QUEUE."
            )
        if limits.limit_s is not None and limit_s > limits.limit_s:
            raise Refusal(
                f"{clock(limit_s)} was asked for; queue '{queue}' gives at most "
                f"{clock(limits.limit_s)}. Give a shorter --time, or another queue: export "
                "ALLHANDS_QUEUE."
            )


def refuse_unknown_account(name, site):
    """An account that the site's own command does not list, where it has one and it answers."""
    wanted, command = site["ACCOUNT"], shlex.split(site["ACCOUNTS"])
    known = (ask(command) or "").split() if wanted and command and site["ACCOUNT_OPTION"] else []
    if known and wanted not in known:
        raise Refusal(
            f"The account '{wanted}' of site '{name}' is not one of yours. Known: "
            f"{', '.join(sorted(set(known)))}. Write one of them into "
            f"cluster_jobs/sites/{name}.env, or export ALLHANDS_ACCOUNT."
        )


if __name__ == "__main__":
    try:
        print(json.dumps(read_site(sys.argv[1] if sys.argv[1:] else default_site())))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
