"""What unit tests share: the course of one tiny lab (`sample_course`), and files to read."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write files into an empty current folder, so that specs and messages are short."""
    monkeypatch.chdir(tmp_path)

    def write_files(**files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_bytes(content)

    return write_files
