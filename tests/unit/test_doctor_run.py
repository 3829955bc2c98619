"""What the doctor says of a run's folder: each cause by its evidence; folders that are no runs."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from allhands import config as configs
from allhands.cli import app
from allhands.doctor import run_figures, run_findings
from allhands.trace import facts
from allhands.trace.events import Event, write_events
from allhands.trace.facts import Facts

N_SAMPLES, N_HELD_OUT = 640, 100
STEP_PARTS = {"batch": 1.0, "forward": 4.0, "backward": 4.0, "update": 1.0}


def leave_run(
    folder,
    *,
    ranks=2,
    batch_size=64,
    n_mine=None,
    epochs=2,
    step=STEP_PARTS,
    exchange_s=1.0,
    first_s=0.0,
    evaluate_s=1.0,
    wait_s=0.0,
    **known,
):
    """Write the folder of a run that is healthy but for what is given; times in seconds."""
    folder.mkdir()
    n_mine = N_SAMPLES // ranks if n_mine is None else n_mine
    per_epoch = -(-n_mine // batch_size)
    config = configs.override(
        configs.lab2_cpu(), [f"ranks={ranks}", f"batch_size={batch_size}", f"epochs={epochs}"]
    )
    configs.save(config, folder / "config.json")
    lines = [
        {"update": n, "epoch": n / per_epoch, "loss": 1.0, "elapsed_s": float(n)}
        for n in range(1, epochs * per_epoch + 1)
    ]
    lines.append({"update": epochs * per_epoch, "valid_loss": 1.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    for rank in range(ranks):
        events, now_s = [], 0.0
        for number in range(1, epochs * per_epoch + 1):
            spans = list(step.items())
            spans[0] = (spans[0][0], spans[0][1] + (first_s if number == 1 else 0.0))
            if ranks > 1:
                spans.insert(3, ("communicate", exchange_s + (wait_s if rank else 0.0)))
            if number % per_epoch == 0:
                spans.append(("evaluate", evaluate_s))
            for what, took_s in spans:
                name = "all" if what == "communicate" else ""
                events.append(Event(now_s, now_s + took_s, rank, what, name, number))
                now_s += took_s
        write_events(folder / f"events.rank{rank}.jsonl", events)
        mine = Facts(
            **{
                **{"rank": rank, "ranks": ranks, "host": "here", "cores": 2, "threads": 1},
                **{"batch_size": batch_size, "n_samples": N_SAMPLES, "n_mine": n_mine},
                **{"n_held_out": N_HELD_OUT, "n_held_out_mine": N_HELD_OUT // ranks},
                **{name: each[rank] for name, each in known.items()},
            }
        )
        facts.write(folder, mine)
    return folder


@pytest.fixture
def alone(tmp_path):
    return leave_run(tmp_path / "alone", ranks=1)


def found(*folders):
    return {one.name: one for one in run_findings.diagnose(*folders)}


def bad(findings):
    return {name for name, one in findings.items() if one.status == "bad"}


def test_a_healthy_run_has_nothing_bad_and_its_speed_up_is_that_of_the_events(tmp_path, alone):
    findings = found(leave_run(tmp_path / "two"), alone)
    assert bad(findings) == set()
    # Alone 10 steps of 10 s and an evaluation of 1 s; together 5 steps of 11 s and 1 s.
    assert "101.00 s" in findings["speed"].seen
    assert "56.00 s" in findings["speed"].seen
    assert f"{101 / 56:.2f} times as fast" in findings["speed"].seen


CAUSES = {
    "data": ({"n_mine": N_SAMPLES}, {"data", "steps", "speed"}, "1,280, but the whole set has 640"),
    "threads": ({"threads": (2, 2)}, {"threads"}, "2 ranks on 2 cores of here, 4 threads in all"),
    "cut batch": (
        {"batch_size": 32},
        {"cut batch", "steps", "speed"},
        "50% of the samples in 110% of the time",
    ),
    "loader": ({"n_read": (640, 0)}, {"loader"}, "640 and 0 samples were read by the 2 ranks"),
    "evaluation": (
        {"n_held_out_mine": (100, 100)},
        {"evaluation"},
        "each 100 of 100 samples on 2 ranks",
    ),
    "work": ({"epochs": 4}, {"work"}, "epochs: 4; in the other run 20 steps"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_is_named_with_its_evidence_and_no_other(tmp_path, alone, cause):
    changes, expected, evidence = CAUSES[cause]
    findings = found(leave_run(tmp_path / "two", **changes), alone)
    assert bad(findings) == expected
    assert evidence in findings[cause].seen
    assert findings[cause].advice


WARNINGS = {
    "loader": ({"step": STEP_PARTS | {"batch": 9.0}}, "getting batches takes 4"),
    "first step": ({"first_s": 55.0}, "as long as 6.0 others; counted in"),
    "evaluation": ({"evaluate_s": 40.0}, "of the time"),
    "batch": ({"batch_size": 8}, "8 samples in a step"),
    "data": ({"n_mine": 200}, "400 of the 640 samples"),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_may_be_a_cause_is_a_warning(tmp_path, name):
    changes, evidence = WARNINGS[name]
    finding = found(leave_run(tmp_path / "two", **changes))[name]
    assert finding.status == "warn"
    assert evidence in finding.seen
    assert finding.advice


def test_a_cut_batch_whose_step_is_as_much_shorter_is_a_warning(tmp_path, alone):
    half = {what: time_s / 2 for what, time_s in STEP_PARTS.items()}
    run = leave_run(tmp_path / "two", batch_size=32, step=half, exchange_s=0.5)
    assert "50% of the samples in 55% of the time" in found(run, alone)["cut batch"].seen
    assert found(run, alone)["cut batch"].status == "warn"


def test_one_rank_that_evaluates_for_all_is_bad_too(tmp_path):
    run = leave_run(tmp_path / "two", n_held_out_mine=(100, 0))
    assert "others wait" in found(run)["evaluation"].advice


def test_more_ranks_than_cores_are_not_mended_by_fewer_threads(tmp_path):
    finding = found(leave_run(tmp_path / "four", ranks=4))["threads"]
    assert finding.status == "bad"
    assert "one rank a core" in finding.advice


def test_threads_are_counted_host_by_host(tmp_path):
    run = leave_run(tmp_path / "four", ranks=4, host=("a", "b", "a", "b"))
    assert found(run)["threads"].status == "good"


def test_a_first_step_and_evaluations_do_not_change_the_time_of_a_step(tmp_path):
    figures = run_figures.read(leave_run(tmp_path / "two", first_s=100.0, evaluate_s=50.0))
    assert figures.step_s == 11.0
    assert figures.times_s[0] == 111.0


def test_on_the_cpu_clock_waiting_is_left_out_and_the_quiet_exchange_counts(tmp_path):
    run = leave_run(tmp_path / "two", wait_s=30.0)
    assert run_figures.read(run).step_s == 41.0  # by the clock
    for rank in range(2):
        (run / f"cpu.rank{rank}.jsonl").write_bytes((run / f"events.rank{rank}.jsonl").read_bytes())
    figures = run_figures.read(run)
    assert figures.on_cpu
    assert figures.step_s == 11.0
    assert figures.transfer_s == 1.0


def test_a_run_without_facts_is_judged_by_its_events(tmp_path, alone):
    run = leave_run(tmp_path / "two", n_mine=N_SAMPLES)
    for path in run.glob("facts.*"):
        path.unlink()
    findings = found(run, alone)
    assert "data" not in findings
    assert "steps" in bad(findings)


def test_a_finished_run_says_whether_it_had_its_core(tmp_path):
    run = leave_run(tmp_path / "two")
    (run / "result.json").write_text('{"cpu_s": 5.0, "wall_s": 10.0}')
    assert "50% of a core" in found(run)["core"].seen
    assert found(run)["core"].status == "warn"


def test_the_command_prints_findings_and_fails_if_one_is_bad(tmp_path, alone):
    good, slow = leave_run(tmp_path / "good"), leave_run(tmp_path / "slow", threads=(2, 2))
    ran = CliRunner().invoke(app, ["doctor", "--run", str(good), "--against", str(alone)])
    assert ran.exit_code == 0
    assert "Nothing here explains a slow run." in ran.output
    ran = CliRunner().invoke(app, ["doctor", "--run", str(slow), "--json"])
    assert ran.exit_code == 1
    content = json.loads(ran.output)
    assert not content["good"]
    assert [one["name"] for one in content["findings"] if one["status"] == "bad"] == ["threads"]


def spoilt(folder, name, text):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)


SPOILT = {
    "no config": ("config.json", None, "it has no config.json"),
    "a config of something else": ("config.json", "[1]", "not the config of a run"),
    "events of one rank only": ("events.rank1.jsonl", None, "events of 1 of 2 ranks"),
    "no step": ("metrics.jsonl", "", "no step yet"),
    "no metrics": ("metrics.jsonl", None, "cannot be read"),
    "facts of something else": ("facts.rank0.json", '{"rank": 0}', "does not hold the facts"),
    "facts that are a list": ("facts.rank0.json", "[]", "does not hold the facts"),
    "JSON without an end": ("facts.rank1.json", "[" * 100_000, "nested too deep"),
    "a step 0": ("metrics.jsonl", '{"update": 0, "epoch": 0}\n', "no step yet"),
    "an epoch 0": ("metrics.jsonl", '{"update": 5, "epoch": 0}\n', "no step yet"),
    "an event of rank '1'": (
        "events.rank1.jsonl",
        '{"start_s": 0, "end_s": 1, "rank": "1", "what": "forward", "name": "", "step": 1}\n',
        "not the events of a run",
    ),
    "an event of a third rank": (
        "events.rank7.jsonl",
        '{"start_s": 0, "end_s": 1, "rank": 7, "what": "forward", "name": "", "step": 1}\n',
        "two runs have left their files",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_folder_that_is_no_run_is_refused_in_a_sentence(tmp_path, what):
    name, text, sentence = SPOILT[what]
    run = leave_run(tmp_path / "two")
    spoilt(run, name, text)
    ran = CliRunner().invoke(app, ["doctor", "--run", str(run)])
    assert ran.exit_code == 2
    assert sentence in " ".join(ran.output.split())
    assert "Traceback" not in ran.output


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Facts)])
@pytest.mark.parametrize("value", ["many\x1b[31m", -1, 1.5, [[1]], True, {}])
def test_facts_of_a_wrong_kind_are_refused_by_their_name(tmp_path, name, value):
    run = leave_run(tmp_path / "two")
    path = run / "facts.rank1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    ran = CliRunner().invoke(app, ["doctor", "--run", str(run)])
    assert ran.exit_code == 2
    assert f"does not hold the facts of a rank: {name} is" in " ".join(ran.output.split())


def test_events_that_take_no_time_are_refused(tmp_path):
    run = leave_run(tmp_path / "two", step=dict.fromkeys(STEP_PARTS, 0.0), exchange_s=0.0)
    ran = CliRunner().invoke(app, ["doctor", "--run", str(run)])
    assert ran.exit_code == 2
    assert "steps that take no time" in " ".join(ran.output.split())


def test_fewer_ranks_are_not_bad_because_they_are_slower(tmp_path, alone):
    two = leave_run(tmp_path / "two")
    assert found(alone, two)["speed"].status == "good"
    assert found(two, two)["speed"].status == "good"


def test_faster_than_the_ranks_explain_is_a_warning(tmp_path, alone):
    fast = {what: time_s / 4 for what, time_s in STEP_PARTS.items()}
    finding = found(leave_run(tmp_path / "two", step=fast, exchange_s=0.1), alone)["speed"]
    assert finding.status == "warn"
    assert "more than the ranks explain" in finding.advice


def test_runs_that_differ_in_more_than_their_ranks_are_named(tmp_path, alone):
    run = leave_run(tmp_path / "two")
    assert "settings" not in found(run, alone)
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"n_hidden": 7}))
    finding = found(run, alone)["settings"]
    assert finding.status == "warn"
    assert "n_hidden: " in finding.seen
    assert "ranks" not in finding.seen


def test_warnings_are_not_called_nothing(tmp_path):
    small = leave_run(tmp_path / "small", batch_size=8)
    ran = CliRunner().invoke(app, ["doctor", "--run", str(small)])
    assert ran.exit_code == 0
    assert "Nothing is bad. May cost time: batch" in " ".join(ran.output.split())


BOUND = {  # the cores of two ranks; how many threads each has; status; the cores that are counted
    "each to its own": (((0,), (1,)), (1, 1), "good", "2 cores"),
    "both to one": (((0,), (0,)), (1, 1), "bad", "1 core "),
    "two each": (((0, 1), (2, 3)), (2, 2), "good", "4 cores"),
    "half shared": (((0, 1), (1, 2)), (2, 2), "bad", "3 cores"),
}


@pytest.mark.parametrize("case", BOUND)
def test_ranks_that_a_launcher_binds_to_cores_are_counted_with_all_their_cores(tmp_path, case):
    cpus, n_threads, status, seen = BOUND[case]
    cores = tuple(map(len, cpus))
    run = leave_run(tmp_path / "two", cpus=cpus, cores=cores, threads=n_threads)
    finding = found(run)["threads"]
    assert finding.status == status
    assert seen in finding.seen


def test_a_quota_below_the_cores_of_a_rank_is_what_counts(tmp_path):
    run = leave_run(tmp_path / "two", cpus=((0, 1, 2, 3),) * 2, threads=(2, 2))  # 2 cores each
    assert "on 2 cores" in found(run)["threads"].seen


def test_against_alone_is_refused(alone):
    ran = CliRunner().invoke(app, ["doctor", "--against", str(alone)])
    assert ran.exit_code == 2
    assert "give --run" in ran.output


def test_facts_come_back_as_they_were_written_and_later_fields_do_no_harm(tmp_path):
    one = Facts(0, 1, "here", 2, 1, 64, 640, 640, 100, 100, n_read=7, cpus=(0, 1))
    path = facts.write(tmp_path, one)
    assert list(facts.read(tmp_path)) == [one]
    path.write_text(json.dumps(dataclasses.asdict(one) | {"new": 1}))
    assert list(facts.read(tmp_path)) == [one]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 8),
        ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": ""}, 3),
        ({"OMP_NUM_THREADS": "many"}, 8),
        ({"OMP_NUM_THREADS": "0"}, 1),
    ],
)
def test_threads_are_what_the_environment_says_else_all_cores(environ, expected):
    assert facts.threads_of(environ, cores=8) == expected


def test_a_training_run_leaves_its_facts(tmp_path):
    from allhands.train import run

    small = ["train=numbers_dates/valid", "epochs=1", "n_hidden=8", "n_embed=4", "batch_size=250"]
    config = configs.override(configs.lab1_cpu(), [*small, "evaluate_pairs=10"])
    run.train(config, tmp_path / "run")
    (one,) = facts.read(tmp_path / "run")
    assert (one.rank, one.ranks, one.batch_size) == (0, 1, 250)
    assert one.n_samples == one.n_mine == 500
    assert one.n_held_out == one.n_held_out_mine == 10
    assert bad(found(tmp_path / "run")) == set()
