"""`allhands compare` on real ranks: right programs are equal, and each planted mistake is named.

The programs are the files of `planted/`; `healthy.py` there is right, the others change one thing.
"""

import json
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allhands import cli
from allhands.train.compare import Comparison, compare, compare_all, parts

PLANTED = Path(__file__).with_name("planted")
RIGHT = ("healthy", "by_hand", "seeds_with_broadcast", "edited_shard")
# File -> (the check that differs first, the cause that it must name).
MISTAKES = {
    "no_scatter": ("samples", "no-scatter"),
    "no_shuffle": ("samples", "no-shuffle"),
    "stretches": ("samples", "no-shuffle"),
    "same_order": ("samples", "same-order"),
    "padded_shards": ("samples", "padded-shards"),
    "unequal_steps": ("samples", "unequal-steps"),
    "summed_metrics": ("metrics", "summed-metrics"),
    "local_metrics": ("metrics", "local-metrics"),
    "mean_of_means": ("metrics", "mean-of-means"),
    "mean_of_bleus": ("metrics", "mean-of-bleus"),
    "local_counts": ("counts", "local-counts"),
    "averaged_counts": ("counts", "averaged-counts"),
    "rank_0_share": ("counts", "rank-0-share"),
    "padded_held_out": ("counts", "padded-counts"),
    "held_out_on_all": ("counts", "held-out-on-all"),
    "dropped_rest": ("counts", "dropped-counts"),
    "edited_total": ("counts", "local-counts"),
    "different_seeds": ("initial", "no-broadcast"),
    "lazy": ("initial", "not-yet-initialised"),
    "update_before_broadcast": ("initial", "updated-before-broadcast"),
    "local_vocabulary": ("same", "rank-local-vocabulary"),
    "edited_speaks": ("same", "wrong-speaker"),
    "stale_snapshot": ("initial", "changed-after-broadcast"),
    "other_samples": ("gradient", "other-samples"),
    "other_held_out": ("counts", "other-held-out"),
    "short_evaluation": ("counts", "held-out-short"),
    "dropout_in_evaluation": ("metrics", "random-evaluation"),
    "scaled_rate": ("same", "rate-scaled"),
    "scaled_in_update": ("parameters", "rate-in-update"),
    "plain_optimizer": ("gradient", "not-exchanged"),
    "unequal_weights": ("gradient", "unequal-weights"),
    "summed_gradient": ("gradient", "summed"),
    "summed_and_clipped": ("gradient", "summed"),
    "edited_multi_node": ("gradient", "summed"),
    "loss_times_ranks": ("gradient", "summed"),
    "loss_over_ranks": ("gradient", "divided-twice"),
    "loss_by_batch_size": ("gradient", "loss-grows-with-batch"),
    "clip_by_ranks": ("gradient", "hooks-differ"),
    "clipped_before": ("gradient", "clipped-before"),
    "dropout": ("gradient", "random-loss"),
}


def path(name: str) -> Path:
    return PLANTED / f"{name}.py"


def check(comparison: Comparison, name: str):
    return next(check for check in comparison.checks if check.name == name)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> dict[str, Comparison]:
    """All programs in one start of two ranks; `example` is that of the adapter's docstring."""
    text = parts.__doc__.partition("trains:\n\n")[2].partition("\n\n`build` uses")[0]
    example = tmp_path_factory.mktemp("adapter") / "example.py"
    example.write_text("\n".join(line.removeprefix("    ") for line in text.splitlines()))
    names = [*RIGHT, *MISTAKES, "example"]
    found = compare_all([*map(path, names[:-1]), example], 2, time_limit_s=240)
    return dict(zip(names, found, strict=True))


@pytest.fixture(scope="module")
def three() -> dict[str, Comparison]:
    """Ranks whose shares are unequal: 49 = 17 + 16 + 16 samples, 31 = 11 + 10 + 10 held out."""
    names = ["healthy", "unequal_weights", "padded_held_out"]
    found = compare_all(list(map(path, names)), 3, time_limit_s=240)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", [*RIGHT, "example"])
def test_a_right_program_is_equal_on_two_ranks(two, name):
    assert two[name].equal, two[name]
    assert two[name].first_difference is None
    assert [check.equal for check in two[name].checks] == [True] * 8


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_named(two, name):
    found = two[name]
    assert not found.equal
    assert (found.first_difference, found.difference.id) == MISTAKES[name], found


@pytest.mark.parametrize("name", ["gradient", "parameters"])
def test_rounding_lies_an_order_below_the_bound_and_mistakes_two_above(two, name):
    for right in RIGHT:
        facts = check(two[right], name).facts
        assert facts["distance"] <= facts["bound"] / 10
    mistakes = [file for file, (where, _) in MISTAKES.items() if where == name]
    for file in set(mistakes) - {"dropout"}:  # nothing has a bound where all is random
        facts = check(two[file], name).facts
        assert facts["distance"] >= 100 * facts["bound"], file


def test_what_hangs_on_a_failed_check_is_not_compared(two):
    seeds = two["different_seeds"]
    assert check(seeds, "gradient").seen == "not compared, since `initial` differs"
    assert check(seeds, "counts").equal  # the evaluation is of equal parameters all the same
    local = check(two["local_vocabulary"], "gradient")
    assert local.equal is None
    assert "parameters of different sizes" in local.seen


def test_the_values_of_each_side_are_told(two):
    assert "alpha: ranks 0, 1 0.04, alone 0.02" in two["scaled_rate"].difference.seen
    assert "n_sentences: rank 0 16, rank 1 15, alone 31" in two["local_counts"].difference.seen
    assert "rank 1 said nothing" in two["rank_0_share"].difference.seen


def test_three_ranks_with_unequal_shares(three):
    assert three["healthy"].equal, three["healthy"]
    assert three["unequal_weights"].difference.id == "unequal-weights"
    assert three["padded_held_out"].difference.id == "padded-counts"


@pytest.mark.parametrize("ranks", [1, 4])
def test_one_rank_and_four(ranks):
    found = compare(path("healthy"), ranks, time_limit_s=240)
    assert found.equal, found


def test_ranks_that_wait_for_each_other_are_ended_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # in the command line of every rank
    done = CliRunner().invoke(
        cli.app, ["compare", str(path("rank_0_evaluates")), "--ranks=2", "--json"]
    )
    assert done.exit_code == 1, done.output
    found = json.loads(done.output)
    assert (found["equal"], found["first_difference"]) == (False, "counts")
    said = {check["name"]: check for check in found["checks"]}
    assert said["parameters"]["equal"] is True
    assert said["counts"]["id"] == "rank-0-hang"
    assert "rank 1 left `evaluate`; rank 0 still waits in it" in said["counts"]["seen"]
    assert "healthy.py: n, tokens = comm.allreduce_obj(mine.sentences)" in said["counts"]["seen"]
    assert said["metrics"]["equal"] is None
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    assert not [command for command in commands if str(tmp_path).encode() in command]
    assert not list(tmp_path.iterdir())


def test_a_program_that_raises_is_wrong_use_and_says_where():
    done = CliRunner().invoke(cli.app, ["compare", str(path("raises")), "--ranks=2"])
    assert done.exit_code == 2, done.output
    assert "rank 1 of 2 raised ZeroDivisionError" in done.output
    assert "(line 8 of raises.py), in `build`" in done.output
    assert "Traceback" not in done.output
