"""What a machine lacks for a box is said in a sentence with its cure. Lacks are real where they can
be made real without harm: in namespaces that end with the program that asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allhands.box import needs, place

ASK = "from allhands.box import needs; print('\\n'.join(needs.missing(link={})))"


def asked(*before: str, link: bool = False) -> list[str]:
    """What a process finds missing that is started by the words `before`."""
    words = [*before, sys.executable, "-c", ASK.format(link)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    return [line for line in ran.stdout.splitlines() if line]


def without_tun(*words: str) -> list[str]:
    """A command line that runs `words` where /dev/net is empty."""
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs a /dev/net && exec "$@"',
        "sh",
        *words,
    ]


def test_where_nothing_is_missing_nothing_is_said(can_link):
    assert needs.missing(link=True) == []


def test_another_system_than_linux_is_all_that_is_said(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    [sentence] = needs.missing(link=True)
    assert "A box needs Linux" in sentence
    assert "--site local" in sentence


def test_a_user_is_told_the_command_with_sudo(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sentence = needs.missing()[0]
    assert "A box needs root" in sentence
    assert f"sudo {Path(sys.executable).parent}/allhands box up" in sentence


def test_missing_packages_are_named_with_the_line_that_installs_them(monkeypatch, tmp_path):
    for tool in ("slurmctld", "slurmd", "ip"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setattr(needs, "PATH", str(tmp_path))
    monkeypatch.setattr(needs, "PLUGIN_PLACES", (f"{tmp_path}/*.so",))
    [sentence] = [said for said in needs.missing() if "apt-get" in said]
    expected = "slurm-client munge slurm-wlm-basic-plugins"
    assert f"sudo apt-get install -y --no-install-recommends {expected}." in sentence


def test_every_package_stands_in_the_list_that_make_packages_installs():
    text = (Path(__file__).parents[2] / "handson" / "debian-packages.txt").read_text()
    listed = {line.split()[0] for line in text.splitlines() if line and line[0] != "#"}
    assert {*needs.PACKAGES, needs.PLUGINS} <= listed


def test_a_root_without_the_right_to_make_namespaces_is_told_so(can_box):
    """As in a container that is not privileged."""
    [sentence] = asked("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    assert "new mount namespaces, and this machine does not allow them" in sentence
    assert "Operation not permitted" in sentence
    assert "--privileged" in sentence


def test_a_limit_on_network_namespaces_is_found(can_box):
    limit = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    [sentence] = asked("unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh")
    assert "new network namespaces" in sentence
    assert "sysctl user" in sentence


def test_a_missing_tun_device_matters_for_a_link_alone(can_link):
    assert asked(*without_tun()) == []
    [sentence] = asked(*without_tun(), link=True)
    assert "/dev/net/tun" in sentence
    assert "modprobe tun" in sentence
    assert "leave out --rate and --delay" in sentence


def test_a_folder_that_others_can_write_to_is_not_used(can_box, monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setattr(place, "BASE", tmp_path)
    [sentence] = needs.missing()
    assert f"ls -ld {tmp_path}" in sentence
    link = tmp_path / "link"
    link.symlink_to("/run")
    monkeypatch.setattr(place, "BASE", link)
    assert len(needs.missing()) == 1


def test_what_a_crash_left_is_swept_and_what_lives_is_not(can_box, box, box_name):
    left = place.BASE / f"{box_name}-left"
    (left / "log").mkdir(parents=True)
    names = place.names()
    assert not left.exists()
    assert left.name not in names
    assert box.name in names


DEMAND = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("boxes_for_tests", sys.argv[1])
fixtures = module_from_spec(spec)
spec.loader.exec_module(fixtures)
try:
    fixtures.demand(link=True)
except BaseException as outcome:
    print(type(outcome).__name__, outcome)
"""


@pytest.mark.parametrize(
    ("on_ci", "outcome"), [("", "Skipped"), ("false", "Skipped"), ("true", "Failed")]
)
def test_where_a_need_is_missing_tests_skip_and_on_ci_they_fail(can_link, on_ci, outcome):
    conftest = str(Path(__file__).with_name("conftest.py"))
    ran = subprocess.run(
        without_tun(sys.executable, "-c", DEMAND, conftest),
        env={**os.environ, "CI": on_ci},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.startswith(f"{outcome} A box with --rate or --delay needs /dev/net/tun")
