"""Changing site is changing one file: what a site is called and how it is asked stands only there.

The names are read from the site files themselves, so a new one is looked for from its first day.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITES = ROOT / "cluster_jobs/sites"
# The kit's own names: no site is called so. Everything else in sites/ is one.
GENERIC = re.compile(r"local|box|box-pbs|\w+-generic|my_.*")
# Speaking of sites is the subject of these: tests of the site files, and logs as they were met.
SPEAK_OF_SITES = ("cluster_jobs/sites/", "tests/jobs/", "tests/box/", "tests/unit/triage_logs/")
PRODUCTS = {"cuda", "nccl", "hpcx", "openmpi", "mpich"}  # sold to every site; a version is not
DATA = {".ipynb", ".svg", ".gz", ".png", ".jpg", ".tsv", ".csv", ".npz", ".sqlite", ".lock"}
# Options that carry an account or a queue, as a command line or a header has them.
OPTIONS = r"^#(SBATCH|PBS|PJM|\$) .*(--account|--partition|-A |-P |-q |-g |rscgrp=|group_list=)"
OPTIONS += r"|\b(sbatch|qsub|pjsub) ([^|`]* )?"
OPTIONS += r"(--account|--partition|-[APqg] |-W group_list|-L rscgrp)"
MODULES = r"\bmodule (load|add) [\w\"']"
INTERFACES = (
    r"(SOCKET_IFNAME|TCP_IFACE|if_include|NETWORK)[\"']?\s*[=:]\s*[\"']?(ib|hsn|eth|bond|opa)\d"
)


def values(site: Path) -> dict[str, str]:
    """The site's own values, as bash reads them where nothing is exported."""
    names = re.findall(r"^(ALLHANDS_\w+)=", site.read_text(), re.MULTILINE)
    program = f". {shlex.quote(str(site))}; " + "; ".join(f'echo "${name}"' for name in names)
    ran = subprocess.run(
        ["bash", "-c", program], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    return dict(zip(names, ran.stdout.splitlines(), strict=True))


def real_sites() -> list[Path]:
    return sorted(path for path in SITES.glob("*.env") if not GENERIC.fullmatch(path.stem))


def own_words() -> dict[str, str]:
    """{word: the site it belongs to}: names of sites, queues, groups, interfaces, modules."""
    words = {}
    for site in real_sites():
        seen = values(site)
        words[site.stem] = site.stem
        for name in ("QUEUE", "ACCOUNT", "NETWORK", "LOGIN"):
            if seen.get(f"ALLHANDS_{name}"):
                words[seen[f"ALLHANDS_{name}"]] = site.stem
        for module in seen.get("ALLHANDS_MODULES", "").split():
            if "/" in module or module not in PRODUCTS:
                words[module] = site.stem
    return words


def texts() -> list[tuple[str, str]]:
    """(path, text) of every file that git knows or would take, but those about sites."""
    ask = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no clone of git: which files belong to the project is not known")
    found = []
    for name in sorted(set(listed.stdout.split("\0"))):
        path = ROOT / name
        data = path.suffix in DATA or "corpora" in path.parts or not path.is_file()
        if name and not data and not name.startswith(SPEAK_OF_SITES):
            found.append((name, path.read_text(encoding="utf-8", errors="replace")))
    return found


def faults(name: str, text: str, words: dict[str, str]) -> list[str]:
    """What belongs into a site file, of a text. The name of such a file may stand there."""
    text = re.sub(r"(sites/)?[\w-]+\.env\b", "", text)
    found = []
    listed = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{name}:{number}: {line.strip()[:80]}"
        if match := re.search(rf"(?<![\w-])({listed})(?![\w-])", line):
            found.append(f"{at} ({match[1]} belongs to {words[match[1]]})")
        if name.startswith("tests/"):  # a stand-in for a command may know its options
            continue
        if re.search(OPTIONS, line) or re.search(INTERFACES, line):
            found.append(f"{at} (an option of a site)")
        if name.startswith("cluster_jobs/") and re.search(MODULES, line):
            found.append(f"{at} (a module of a site)")
    return found


def test_nothing_of_a_site_stands_outside_its_file():
    words = own_words()
    assert {"h-regular", "regular-g", "rt_HF", "wisteria", "tsubame4"} <= set(words)
    found = [fault for name, text in texts() for fault in faults(name, text, words)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("README.md", "On abci3 it runs at once."),
        ("handson/x.py", "QUEUES = ['regular-g']"),
        ("cluster_jobs/lab1.slurm", "#SBATCH --partition=long"),
        ("cluster_jobs/lab1.pbs", "#PBS -W group_list=gr01"),
        ("cluster_jobs/lab1.pbs", "module load cuda/12"),
        ("cluster_jobs/submit", "qsub -q long lab1.pbs"),
        ("slides/x.md", "export NCCL_SOCKET_IFNAME=ib0"),
        ("Makefile", "\tsbatch --account=gr01 x"),
    ],
)
def test_the_look_finds_what_it_is_for(name, line):
    assert len(faults(name, f"first\n{line}\n", own_words())) == 1


@pytest.mark.parametrize(
    "line", ["See sites/abci3.env.", "| `reedbush-h.env` | PBS |", "qsub says"]
)
def test_a_text_may_name_the_file_of_a_site(line):
    assert faults("README.md", line, own_words()) == []


@pytest.mark.parametrize("site", sorted(SITES.glob("*.env")), ids=lambda path: path.stem)
def test_each_site_file_says_what_was_checked_and_what_was_not(site):
    if site.stem.startswith("my_"):
        pytest.skip("this machine's own site, of which git knows nothing")
    head = site.read_text().split("\n\n")[0]
    assert "Checked:" in head
    if site in real_sites():
        assert re.search(r"Checked:.*\(20\d\d-\d\d-\d\d\)", head, re.DOTALL), "how, and when"
        assert re.search(r"Not checked: .*(machine itself|a real PJM)", head, re.DOTALL)
