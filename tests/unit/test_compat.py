"""Does each mend of allhands/compat.py mend something, and does it reach every Python process?

Most tests run a fresh Python, since a mended process cannot be unmended.
"""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from allhands import compat

ROOT = Path(__file__).parents[2]
PTH = ROOT / "handson" / "allhands_compat.pth"
SETUPTOOLS = int(importlib.metadata.version("setuptools").split(".")[0])
NUMPY_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0"


def run(*command: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def python(code: str) -> subprocess.CompletedProcess:
    return run(sys.executable, "-c", code)


def succeeds(code: str) -> str:
    """Run `code` in a fresh Python, require success, and return what it printed."""
    done = python(code)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the mends, one by one

NO_PKG_RESOURCES = "import sys; sys.modules['pkg_resources'] = None\n"  # as with setuptools 82
RESIZE = """
import chainer.functions as F, numpy as np
image = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
assert F.resize_images(image, (3, 3)).array[0, 0, 1, 1] == image.mean()
"""
STRIDED = """
import chainer.functions as F, numpy as np
pairs = F.as_strided(np.arange(4, dtype=np.float32), (3, 2), (1, 1), 0)
assert pairs.array.tolist() == [[0, 1], [1, 2], [2, 3]]
"""
needs_numpy_2 = pytest.mark.skipif(
    NUMPY_1, reason=f"NumPy {np.__version__} still has numpy.sctypes: this mend is for NumPy 2"
)


@pytest.mark.parametrize(
    ("mend", "code", "error"),
    [
        ("_mend_environment_check", "import chainer", "ModuleNotFoundError"),
        ("_mend_pkg_resources", NO_PKG_RESOURCES + "import chainer.testing", "ModuleNotFoundError"),
        ("_mend_numpy_float", RESIZE, "has no attribute 'float'"),
        pytest.param("_mend_numpy_sctypes", STRIDED, "np.sctypes", marks=needs_numpy_2),
    ],
)
def test_chainer_works_with_the_mend_and_fails_without_it(mend, code, error):
    succeeds(code)
    without = f"""
from allhands import compat
compat.remove_hook()
compat.{mend} = lambda: None
compat.mend()
"""
    failed = python(without + code)
    assert failed.returncode != 0
    assert error in failed.stderr


def test_the_pkg_resources_that_stands_in_judges_requirements():
    said = succeeds(
        NO_PKG_RESOURCES
        + """
import chainer, pkg_resources
for text in ("numpy>=1.9", "numpy<1.9", "a-package-that-nobody-has"):
    try:
        print(pkg_resources.WorkingSet().require(text))
    except pkg_resources.ResolutionError as error:
        print(error)
"""
    )
    assert said.splitlines() == [
        "None",
        f"numpy<1.9 is required, and {np.__version__} is installed",
        "a-package-that-nobody-has is required, and is not installed",
    ]


@pytest.mark.skipif(SETUPTOOLS >= 82, reason=f"setuptools {SETUPTOOLS} has no pkg_resources")
def test_setuptools_own_pkg_resources_is_left_in_place():
    succeeds("import chainer, pkg_resources; pkg_resources.Requirement.parse('numpy')")


@pytest.mark.skipif(not NUMPY_1, reason="NumPy 2 has no numpy.sctypes of its own to compare with")
def test_our_sctypes_is_that_of_numpy_1():
    succeeds("""
import numpy as np
from allhands import compat
theirs = np.sctypes
del np.sctypes
compat._mend_numpy_sctypes()
assert np.sctypes is not theirs
for kind in ("int", "uint", "float", "complex"):
    assert set(np.sctypes[kind]) == set(theirs[kind])
""")


def test_pytest_can_work_beside_the_pkg_resources_that_stands_in():
    succeeds(
        NO_PKG_RESOURCES
        + "import chainer, pytest; pytest.MonkeyPatch().syspath_prepend('a-folder'); import json"
    )


def test_importing_chainer_says_nothing():
    done = python("import chainer, chainermn")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mending_twice_is_mending_once():
    succeeds(NO_PKG_RESOURCES + "from allhands.compat import mend; mend(); mend(); import chainer")


# --- the hook and the .pth file


def test_the_hook_waits_for_chainer_and_then_leaves():
    succeeds("""
import sys
from allhands.compat import Hook, install_hook
install_hook()
assert sys.meta_path.count(Hook) == 1
import numpy
assert not hasattr(numpy, "float")
import chainermn
assert Hook not in sys.meta_path
assert numpy.float is float
""")


def test_the_pth_file_is_part_of_the_installed_project():
    names = {file.name for file in importlib.metadata.files("allhands")}
    assert PTH.name in names


def test_the_pth_file_is_one_line_that_site_runs():
    (line,) = PTH.read_text().splitlines()
    assert line.startswith("import ")


def start_with_pth(folder: Path) -> subprocess.CompletedProcess:
    """Start Python with `folder` as its only site-packages, holding the .pth file."""
    (folder / PTH.name).write_bytes(PTH.read_bytes())
    code = f"import site; site.addsitedir({str(folder)!r}); print('started')"
    return run(sys.executable, "-S", "-c", code, PYTHONPATH="")


def test_the_start_of_python_loads_only_the_compat_module(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "source.pth").write_text(f"{ROOT / 'handson'}\n")
    (tmp_path / PTH.name).write_bytes(PTH.read_bytes())
    code = f"""
import sys, site
site.addsitedir({str(tmp_path / "source")!r})
before = set(sys.modules)
site.addsitedir({str(tmp_path)!r})
print(sorted(set(sys.modules) - before))
"""
    done = run(sys.executable, "-S", "-c", code, PYTHONPATH="")
    assert done.stdout.strip() == "['allhands', 'allhands.compat']"


def test_python_starts_in_silence_where_allhands_is_missing(tmp_path):
    done = start_with_pth(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_python_starts_and_names_the_file_where_allhands_is_broken(tmp_path):
    (tmp_path / "allhands").mkdir()
    (tmp_path / "allhands" / "__init__.py").touch()
    (tmp_path / "allhands" / "compat.py").write_text("def broken(:\n")
    done = start_with_pth(tmp_path)
    assert (done.returncode, done.stdout) == (0, "started\n")
    assert "compat.py" in done.stderr


# --- every process: children of forkserver and spawn, ranks of MPI

ITERATE = """
import multiprocessing, sys
import numpy as np

if __name__ == "__main__":
    import chainer
    multiprocessing.set_start_method(sys.argv[1])
    data = np.arange(6, dtype=np.float32)
    pairs = chainer.datasets.TupleDataset(data, data * data)
    batches = chainer.iterators.MultiprocessIterator(
        pairs, batch_size=3, repeat=False, shuffle=False, n_processes=1
    )
    print([int(square) for batch in batches for _, square in batch])
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_multiprocess_iterator_works_and_ends_without_finalize(tmp_path, method):
    script = tmp_path / "iterate.py"
    script.write_text(ITERATE)
    done = run(sys.executable, str(script), method)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 1, 4, 9, 16, 25]"


RANKS = """
import chainer, chainermn, numpy as np
comm = chainermn.create_communicator("naive")
assert comm.size == 2

link = chainer.links.Linear(1, 1, initialW=10 * (comm.rank + 1))
optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.SGD(lr=1), comm)
optimizer.setup(link)
for _ in range(2):  # the first update sends rank 0's parameters to all, and does no more
    link.cleargrads()
    link.W.grad = np.full((1, 1), comm.rank + 1, np.float32)
    link.b.grad = np.zeros(1, np.float32)
    optimizer.update()
assert link.W.array.item() == 10 - (1 + 2) / 2, link.W.array
"""


def test_two_ranks_of_chainermn_average_their_gradients(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = run(str(mpiexec), "-n", "2", sys.executable, str(script))
    assert done.returncode == 0, done.stderr


# --- the package that must never be installed


def test_the_chainermn_package_is_not_installed_here():
    assert compat.chainermn_intruder() is None


def test_an_installed_chainermn_package_is_reported_with_the_cure(tmp_path, monkeypatch):
    info = tmp_path / "chainermn-1.3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chainermn\nVersion: 1.3.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = compat.chainermn_intruder()
    assert "chainermn 1.3.1 is installed" in said
    assert "pip uninstall --yes chainermn chainer" in said
