"""Configs: complete, changed by name and type, saved with the run."""

import pytest

from allhands import config as configs


@pytest.mark.parametrize("name", configs.PRESETS)
def test_a_preset_knows_its_name_and_survives_its_file(name, tmp_path):
    config = configs.preset(name)
    assert config.preset == name
    configs.save(config, tmp_path / "config.json")
    assert configs.load(tmp_path / "config.json") == config


def test_override_reads_each_value_by_the_type_of_its_setting():
    config = configs.override(
        configs.lab1_cpu(), ["seed=7", "learning_rate=1e-2", "train=my=pairs.tsv", "max_vocab=500"]
    )
    assert (config.seed, config.learning_rate) == (7, 0.01)
    assert (config.train, config.max_vocab) == ("my=pairs.tsv", 500)
    assert configs.override(config, ["max_vocab=none"]).max_vocab is None


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("sed=7", "no setting 'sed'. The settings are: allreduce_dtype, batch_size"),
        ("seed", "Expected key=value, saw 'seed'"),
        ("seed=seven", "seed takes a value of type int, saw 'seven'"),
        ("epochs=0", "epochs must be greater than 0"),
        ("epochs=2.5", "epochs takes a value of type int"),
        ("learning_rate=nan", "learning_rate must be greater than 0"),
        ("learning_rate=inf", "learning_rate must be a finite number: it is inf"),
        ("last_learning_rate=inf", "last_learning_rate must be a finite number"),
        ("clip_norm=inf", "clip_norm must be a finite number"),
        ("seed=-1", "seed must lie between 0 and 4294967295: it is -1"),
        ("seed=4294967296", "seed must lie between 0 and 4294967295"),
        ("max_length=10001", "max_length may be 10000 tokens at most"),
        ("max_vocab=4x", "max_vocab takes a value of type int"),
    ],
)
def test_a_wrong_override_gets_a_sentence(assignment, sentence):
    with pytest.raises(ValueError, match=sentence):
        configs.override(configs.lab1_cpu(), [assignment])


@pytest.mark.parametrize("assignment", ["seed=4294967295", "max_length=10000"])
def test_the_last_value_that_fits_is_taken(assignment):
    key, _, text = assignment.partition("=")
    assert getattr(configs.override(configs.lab1_cpu(), [assignment]), key) == int(text)


def test_an_unknown_preset_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"no preset 'lab9'. The presets are: lab1_cpu"):
        configs.preset("lab9")


@pytest.mark.parametrize("text", ["", "[]", '{"preset": "x", "wheels": 4}', "{}"])
def test_a_file_that_is_no_config_gets_a_sentence(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not the config of a run"):
        configs.load(path)


def test_differences_name_each_setting_that_changed():
    old = configs.lab1_cpu()
    new = configs.override(old, ["seed=1", "epochs=9"])
    assert configs.differences(old, new) == ["epochs: 4 -> 9", "seed: 0 -> 1"]
    assert configs.differences(old, old) == []
