"""Figures: those that are committed are those that the package draws, to the byte."""

import importlib.util
from pathlib import Path

SLIDES = Path(__file__).resolve().parents[2] / "slides"


def figures():
    spec = importlib.util.spec_from_file_location("figures", SLIDES / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_figures_are_drawn_again_to_the_byte(tmp_path):
    figures().build(tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (SLIDES / "figures").glob("*.svg")}
    assert set(drawn) == set(committed)
    assert [name for name in drawn if drawn[name] != committed[name]] == []
