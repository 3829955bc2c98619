"""How JupyterLab is started: a free port, the course's settings, no secret on the command line."""

import asyncio
import json
import os
import re
import socket
from pathlib import Path

import pytest

from allhands.kit import start


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert start.free_port(port) != port
        with pytest.raises(OSError, match="No port is free") as caught:
            start.free_port(port, n_ports=1)
    assert "--port" in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "platform", "browser"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "1 2 3 4"}, "darwin", False),
    ],
)
def test_a_browser_needs_a_screen(variables, platform, browser):
    assert start.has_browser(variables, platform) is browser


def test_the_environment_adds_settings_and_overrides_nothing():
    base = {"OMP_NUM_THREADS": "4", "JUPYTER_CONFIG_PATH": "/mine", "PATH": "/bin", "OTHER": "x"}
    found = start.environment(base)
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["MKL_NUM_THREADS"] == "1"
    assert found["OTHER"] == "x"
    assert found["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(start.SETTINGS), "/mine"]
    assert found["PATH"].split(os.pathsep)[-1] == "/bin"


def test_the_command_says_what_is_special_about_this_machine():
    plain = start.command("/lab/tree/x.ipynb", 8888, browser=True, root_user=False)
    special = start.command("/lab/tree/x.ipynb", 8888, browser=False, root_user=True)
    assert set(special) - set(plain) == {"--no-browser", "--allow-root"}
    assert "--ServerApp.ip=127.0.0.1" in plain
    assert not any("token" in word for word in plain)


def test_the_settings_are_readable():
    for path in start.SETTINGS.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))


def test_the_file_browser_shows_the_notebooks_and_not_the_solutions(monkeypatch, tmp_path):
    from jupyter_events import EventLogger
    from jupyter_server.serverapp import ServerApp

    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))  # nobody's own settings
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(start.SETTINGS))
    app = ServerApp(root_dir=str(start.PROJECT))
    app.load_config_file(suppress_errors=False)
    manager = app.contents_manager_class(
        parent=app, root_dir=str(start.PROJECT), event_logger=EventLogger()
    )
    listed = asyncio.run(manager.get("notebooks"))["content"]
    names = {each["name"] for each in listed}
    assert {f"{stem}.ipynb" for stem in start.COURSE.labs()} <= names
    assert start.COURSE.sources.is_relative_to(start.PROJECT / "notebooks" / "src")
    assert "src" not in names
    standard = set(type(manager).hide_globs.default())
    assert standard < set(manager.hide_globs), "what Jupyter hides by itself stays hidden"


def test_a_missing_notebook_is_told_before_anything_starts(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(start, "SETTINGS", tmp_path / "none")
    assert start.main(["--no-browser"]) == 1
    assert "clone of the project" in capsys.readouterr().err


@pytest.fixture
def nbgraders_plugins():
    """The names of the plugins in nbgrader's installed JupyterLab extension."""
    from jupyter_core.paths import jupyter_path

    folders = [Path(each) / "@jupyter" / "nbgrader" for each in jupyter_path("labextensions")]
    scripts = [path for each in folders for path in each.glob("static/*.js")]
    text = "".join(path.read_text(encoding="utf-8") for path in scripts)
    return set(re.findall(r"@jupyter/nbgrader:[a-z-]+", text))


def test_participants_see_validate_and_nothing_for_instructors(nbgraders_plugins, monkeypatch):
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_page_config

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(start.SETTINGS))
    page = get_page_config(jupyter_path("labextensions"))
    disabled = set(page["disabledExtensions"])
    assert nbgraders_plugins - disabled == {"@jupyter/nbgrader:validate-assignment"}
    assert "@jupyterlab/apputils-extension:announcements" in disabled


def test_validate_and_the_commands_of_nbgrader_read_the_courses_settings():
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", path=str(start.SETTINGS)).load_config()
    assert config.Execute.timeout == config.ExecutePreprocessor.timeout > 30
    assert config.ClearSolutions.code_stub == {"python": "...  # your code here"}
