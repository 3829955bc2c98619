"""What every job script, site file and library file must be, read as text."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster_jobs/lib"))
import plan

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "cluster_jobs"
SCRIPTS = sorted([*JOBS.glob("*.slurm"), *JOBS.glob("*.pbs")])
SITES = sorted(path for path in JOBS.glob("sites/*.env") if not path.stem.startswith("my_"))
BASH = [*SCRIPTS, JOBS / "lib/run.sh", *SITES]

# Options that mean the same on every Slurm, or every PBS Pro. Queue, account, GPU: the site's.
SBATCH = {
    "--job-name": r"[a-z0-9_]+",
    "--nodes": r"\d+",
    "--ntasks-per-node": r"\d+",
    "--cpus-per-task": r"\d+",
    "--time": r"\d\d:\d\d:\d\d",
    "--requeue": None,
    "--open-mode": r"append",
}
PBS = {
    "-N": r"[a-z0-9_]{1,15}",  # more than 15 characters are refused by older versions
    "-S": r"/bin/bash",
    "-l": r"(walltime=\d\d:\d\d:\d\d|place=scatter|select=\d+(:(ncpus|mpiprocs|ompthreads)=\d+)+)",
    "-j": r"oe",
    "-r": r"y",
}


def headers(script: Path) -> list[tuple[str, str | None]]:
    """(option, value) of each header line."""
    pairs = []
    for line in script.read_text().splitlines():
        if line.startswith(("#SBATCH", "#PBS")):
            found = re.match(r"#SBATCH (--[a-z-]+)(?:=(\S+))?$|#PBS (-\w) (\S+)$", line)
            assert found, f"not understood: {line}"
            pairs.append((found[1] or found[3], found[2] or found[4]))
    return pairs


def limit_s(script: Path) -> int:
    clock = re.search(r"(?:--time=|walltime=)(\d+):(\d+):(\d+)", script.read_text())
    hours, minutes, seconds = map(int, clock.groups())
    return 3600 * hours + 60 * minutes + seconds


def needs(script: Path) -> dict[str, int]:
    (line,) = re.findall(r"^#NEEDS (.*)$", script.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", line)}


def test_every_lab_has_both_scripts():
    stems = {
        suffix: {s.stem for s in SCRIPTS if s.suffix == suffix} for suffix in (".slurm", ".pbs")
    }
    assert stems[".slurm"] == stems[".pbs"]
    assert "lab1_seq2seq" in stems[".slurm"]


@pytest.mark.parametrize("path", BASH, ids=lambda p: p.name)
def test_bash_can_read_it(path: Path):
    ran = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("path", BASH, ids=lambda p: p.name)
def test_no_trap_of_line_ends_or_bash_versions(path: Path):
    text = path.read_bytes()
    assert b"\r" not in text, "bash on Linux stumbles over Windows line ends"
    assert b"\t" not in text
    assert text.endswith(b"\n")
    assert not re.search(rb"`[^`\n]+`", re.sub(rb"#.*", b"", text)), "use $( ) instead of backticks"
    # Bash 4.2 is the oldest that is still met; these came with 4.3 and later.
    assert not re.search(rb"local -n|declare -n|wait -n|\$\{\w+@[A-Z]\}|EPOCHSECONDS", text)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_headers_are_from_the_known_list(script: Path):
    allowed = SBATCH if script.suffix == ".slurm" else PBS
    found = headers(script)
    assert found
    for option, value in found:
        assert option in allowed, f"{script.name}: {option} is not known to work on every site"
        assert (value is None) == (allowed[option] is None)
        assert value is None or re.fullmatch(allowed[option], value), f"{option} {value}"
    if script.suffix == ".slurm":
        assert dict(found)["--job-name"] == script.stem
    else:
        assert dict(found)["-N"] == script.stem[:15]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_headers_say_the_same_as_the_needs_line(script: Path):
    wanted, found = needs(script), dict(headers(script))
    assert {"nodes", "ranks_per_node", "gpus_per_node"} <= set(wanted) <= set(plan.NEEDS)
    if script.suffix == ".slurm":
        seen = (int(found["--nodes"]), int(found["--ntasks-per-node"]))
    else:
        select = re.search(r"select=(\d+).*mpiprocs=(\d+)", script.read_text())
        seen = (int(select[1]), int(select[2]))
    assert seen == (wanted["nodes"], wanted["ranks_per_node"])


@pytest.mark.parametrize(
    "script", [s for s in SCRIPTS if "--stop-after" in s.read_text()], ids=lambda p: p.name
)
def test_the_trainer_stops_five_minutes_before_the_limit(script: Path):
    default_s = int(re.search(r"ALLHANDS_STOP_AFTER:-(\d+)", script.read_text())[1])
    assert limit_s(script) - default_s == 300


@pytest.mark.parametrize(
    "slurm", [s for s in SCRIPTS if s.suffix == ".slurm"], ids=lambda p: p.stem
)
def test_both_scripts_of_a_lab_run_the_same_command_for_the_same_time(slurm: Path):
    pbs = slurm.with_suffix(".pbs")
    command = r"^run .*?[^\\]$"
    runs = [re.findall(command, s.read_text(), re.MULTILINE | re.DOTALL) for s in (slurm, pbs)]
    assert len(runs[0]) == 1, "a job script runs one command"
    assert runs[0] == runs[1]
    assert limit_s(slurm) == limit_s(pbs)
    assert needs(slurm) == needs(pbs)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_short_enough_to_read_aloud(script: Path):
    assert len(script.read_text().splitlines()) <= 25


@pytest.mark.parametrize(
    "path",
    [*SCRIPTS, *JOBS.glob("lib/*.sh"), *JOBS.glob("lib/*.py"), JOBS / "submit"],
    ids=lambda p: p.name,
)
def test_no_site_stands_in_a_script(path: Path):
    """No queue, account, GPU option, module, interface, host or person's path outside the sites."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.match(r"\s*#(?!SBATCH|PBS)", line):
            continue
        at = f"{path.name}:{number}: {line}"
        assert not re.search(r"--(partition|account|gres|gpus|qos|constraint|mail)\b", line), at
        assert not re.search(r"(^#PBS|qsub) .*-(q|P|A|W|M) ", line), at
        assert not re.search(
            r"(/home|/lustre|/work|/scratch|/groups?|/users?|/opt|~)[/\"' ]", line
        ), at
        assert not re.search(r"module load (?!\$)|conda activate (?!\"?\$)", line), at
        assert not re.search(r"\b(ib|eth|bond|hsn|en[sp])\d", line), at
        assert not re.search(r"[\w.-]+@[\w-]+\.\w+|\b\w+\.(ac|edu|gov|go)\.?\w*\b", line), at


@pytest.mark.parametrize("path", [JOBS / "submit", *JOBS.glob("lib/*.py")], ids=lambda p: p.name)
def test_a_login_nodes_old_python_can_read_it(path: Path):
    ast.parse(path.read_text(), feature_version=(3, 6))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    stdlib = "argparse collections contextlib json os re shlex shutil signal subprocess sys time"
    own = {path.stem for path in JOBS.glob("lib/*.py")}
    assert imported <= {*stdlib.split()} | own
    assert not own & sys.stdlib_module_names, "a name that Python has already"
    assert not re.search(r"capture_output|text=True|removeprefix|:=|dataclass", path.read_text())


@pytest.mark.parametrize("site", SITES, ids=lambda p: p.stem)
def test_site_files_only_set_names(site: Path):
    for line in site.read_text().splitlines():
        assert re.match(r"(#|$|\w+=)", line), f"{site.name}: {line}"
        if assigned := re.match(r"ALLHANDS_(QUEUE|ACCOUNT)=(\S*)", line):
            empty = "" if assigned[1] == "ACCOUNT" else r"[\w-]*"  # no account is committed
            assert re.fullmatch(rf"(\$\{{ALLHANDS_{assigned[1]}:-{empty}\}})?", assigned[2]), line


def test_each_name_of_a_site_file_is_explained_in_the_generic_one():
    explained = (JOBS / "sites/slurm-generic.env").read_text()
    used = set(re.findall(r"^(ALLHANDS_\w+)=", "\n".join(s.read_text() for s in SITES), re.M))
    known = re.search(r"SITE_NAMES = \((.*?)\)", (JOBS / "lib/sites.py").read_text(), re.DOTALL)[1]
    names = {"ALLHANDS_" + name for name in re.findall(r"[A-Z_]+", known)}
    assert used <= names
    assert {name for name in names if name not in explained} == set()
