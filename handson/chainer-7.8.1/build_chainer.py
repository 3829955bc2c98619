"""How does Chainer 7.8.1 become a wheel? pip builds PyPI's source, inside this build environment.

A PEP 517 backend: pip calls `build_wheel` in an isolated environment that holds what pyproject.toml
`requires`. The inner pip must not isolate again (`--no-build-isolation`): the setuptools that the
build needs is here. Nor may it inherit the variables by which the outer pip names this backend.
"""

import os
import pathlib
import subprocess
import sys

CHAINER = "chainer==7.8.1"
NAMES_OF_BACKEND = ("_PYPROJECT_HOOKS_", "PEP517_")  # pip's, of 2023 and later, and before


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Put Chainer's wheel into `wheel_directory` and return its file name."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(NAMES_OF_BACKEND)}
    subprocess.run([*pip, "--wheel-dir", wheel_directory, CHAINER], check=True, env=env)
    (wheel,) = pathlib.Path(wheel_directory).glob("chainer-*.whl")
    return wheel.name
