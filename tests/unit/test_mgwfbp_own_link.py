"""The kept link: what was fitted comes back, and what is no link is refused in a sentence."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from allhands.cli import app
from allhands.mgwfbp import own_link
from allhands.mgwfbp.fit import fit

SIZES = np.array([4.0, 4e3, 4e6])


@pytest.fixture
def link():
    found = fit(SIZES, 3e-4 + 8e-9 * SIZES)
    return own_link.of(found, ranks=2, hosts=("n1", "n2"), measured_at="2026-11-30T12:00:00")


def test_a_kept_link_comes_back_and_is_a_cost_for_planners(link, tmp_path):
    own_link.save(link, tmp_path / "a" / "link.json")
    back = own_link.load(tmp_path / "a" / "link.json")
    assert back == link
    assert back.cost(1000) == pytest.approx(3e-4 + 8e-6)
    assert back.half_bytes == pytest.approx(3e-4 / 8e-9)


def test_at_half_bytes_start_up_and_bytes_take_the_same_time(link):
    assert link.cost(link.half_bytes) == pytest.approx(2 * link.startup_s)
    assert own_link.OwnLink(1.0, 0.0, (4, 8), 0.0, 2, (), "").half_bytes == float("inf")


def test_it_says_what_was_measured_where_and_when(link):
    said = str(link)
    for part in ("2 ranks on n1, n2", "300.0 us", "8.000 ns a byte", "2026-11-30T12:00:00"):
        assert part in said


def test_without_a_link_it_says_how_to_measure_one(tmp_path):
    with pytest.raises(ValueError, match="Measure yours first, in lab 0, or with: mpiexec -n 2"):
        own_link.load(tmp_path / "link.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: "no JSON",
        lambda content: json.dumps([1, 2]),
        lambda content: json.dumps({k: v for k, v in content.items() if k != "ranks"}),
        lambda content: json.dumps(content | {"colour": "red"}),
        lambda content: json.dumps(content | {"startup_s": -1.0}),
        lambda content: json.dumps(content | {"hosts": 3}),
        lambda content: json.dumps(content | {"startup_s": "fast"}),
    ],
)
def test_what_is_no_link_is_refused(link, tmp_path, change):
    path = tmp_path / "link.json"
    own_link.save(link, path)
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(ValueError, match="is not a kept link: expected JSON with hosts, "):
        own_link.load(path)


# ---- `allhands plan --link` ----


@pytest.fixture
def plan(link, tmp_path):
    """Run `allhands plan` on two gradients; link.json lies beside their table."""
    (tmp_path / "trace.csv").write_text("arrival_index,n_bytes,backward_s\n0,4,0\n1,1,4\n")
    own_link.save(link, tmp_path / "link.json")
    words = ["plan", str(tmp_path / "trace.csv"), "--json"]
    return lambda *more: CliRunner().invoke(app, [*words, *map(str, more)])


def test_a_plan_for_a_kept_link_is_that_for_its_two_numbers(plan, link, tmp_path):
    kept = plan("--link", tmp_path / "link.json")
    given = plan("--startup-s", link.startup_s, "--s-per-byte", link.s_per_byte)
    assert kept.exit_code == given.exit_code == 0
    assert json.loads(kept.stdout) == json.loads(given.stdout)
    other = plan("--startup-s", 2 * link.startup_s, "--s-per-byte", link.s_per_byte)
    assert json.loads(other.stdout) != json.loads(given.stdout)


@pytest.mark.parametrize(
    "words",
    [(), ("--startup-s", 1), ("--s-per-byte", 1), ("--link", "link.json", "--startup-s", 1)],
)
def test_a_plan_wants_either_a_link_or_both_numbers(plan, words):
    ran = plan(*words)
    assert ran.exit_code == 2
    assert "either --link link.json, or both" in ran.output


def test_a_plan_for_a_link_that_is_not_there_says_how_to_measure_one(plan, tmp_path):
    ran = plan("--link", tmp_path / "none.json")
    assert ran.exit_code == 2
    assert "Measure yours first" in ran.output
