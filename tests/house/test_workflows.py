"""The workflows for GitHub: they can be read, and what they call is there."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.iterdir())
# GitHub's names, as far as they are used here: a misspelt one is silently of no effect there.
TOP = {"name", "on", "permissions", "concurrency", "jobs"}
JOB = {"runs-on", "container", "timeout-minutes", "env", "steps"}
STEP = {"name", "uses", "with", "run", "if", "env"}


class Loader(yaml.SafeLoader):
    """YAML as GitHub reads it: the key `on` is a word, not a truth value. No key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice in line {node.start_mark.line + 1}"
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in rules if not tag.endswith(":bool") or first in "tTfF"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), Loader)


def steps(path: Path) -> list[dict]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def names(workflow: Path) -> str:
    return workflow.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=names)
def test_every_name_is_one_that_github_knows(path):
    workflow = read(path)
    assert path.suffix == ".yml"
    assert set(workflow) <= TOP
    assert {"on", "jobs", "permissions"} <= set(workflow)
    for job in workflow["jobs"].values():
        assert set(job) <= JOB
        assert {"runs-on", "steps", "timeout-minutes"} <= set(job)
        for step in job["steps"]:
            assert set(step) <= STEP
            assert ("uses" in step) != ("run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=names)
def test_actions_are_pinned_to_a_major_version(path):
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=names)
def test_what_a_step_calls_is_there(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = 0
    for step in steps(path):
        script = step.get("run", "")
        ran = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
        for line in script.splitlines():
            words = line.split()
            if words[0] == "make":
                assert set(words[1:]) <= targets
            elif "/" in words[0]:
                assert os.access(ROOT / words[0], os.X_OK), words[0]
                if words[0] == "cluster_jobs/submit":
                    for suffix in ("slurm", "pbs"):
                        assert (ROOT / "cluster_jobs" / f"{words[1]}.{suffix}").exists()
            else:
                continue
            called += 1
    assert called


def test_code_of_strangers_does_not_run_on_the_cluster():
    """A runner of one's own must not take pull requests: they bring code of anybody."""
    for path in WORKFLOWS:
        workflow = read(path)
        if any("self-hosted" in job["runs-on"] for job in workflow["jobs"].values()):
            assert not {"pull_request", "pull_request_target", "push"} & set(workflow["on"])
            assert workflow["permissions"] == {"contents": "read"}


def test_the_report_that_is_uploaded_is_what_the_job_writes():
    (path,) = [each for each in WORKFLOWS if "notebooks" in each.name]
    text = path.read_text()
    run_sh = (ROOT / "cluster_jobs" / "notebooks.slurm").read_text()
    assert '--out "$ALLHANDS_RUN"' in run_sh
    for name in ("ALLHANDS_RUN", "ALLHANDS_LOG"):  # names of the job's note
        assert f"${name}" in text
        assert re.search(rf'"{name}"', (ROOT / "cluster_jobs" / "lib" / "plan.py").read_text())
    shown = re.search(r"cat (\S+)/report.txt", text)[1]
    uploaded = next(
        step["with"]["path"] for step in steps(path) if "upload" in step.get("uses", "")
    )
    assert shown == uploaded
