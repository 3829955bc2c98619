"""How does Chainer 7.8.1 (of 2022) run on today's Python? By the five mends below, and no more.

| what is mended            | why Chainer needs it                            | broken by         |
|---------------------------|-------------------------------------------------|-------------------|
| chainer._environment_check| It imports numpy.distutils and pkg_resources,   | Python 3.12 (has  |
|                           | to look for faults of old macOS and for CuPy    | no distutils); on |
|                           | below 8: history. So it is replaced by no check.| 3.11 setuptools 74|
| pkg_resources             | chainer.testing asks it which requirements are  | setuptools 82     |
|                           | met. A small one stands in where there is none. | (removed it)      |
| numpy.float               | F.resize_images takes it as a dtype.            | NumPy 1.24        |
| numpy.sctypes             | F.as_strided reads its dtypes when imported.    | NumPy 2.0         |
| MultiprocessIterator      | Unless finalized, it waits for its thread when  | Python 3.13 (such |
|                           | Python ends. So it is finalized at exit, while  | threads hang then)|
|                           | the thread still runs.                          |                   |

Every Python process of the environment needs this, the children of forkserver and spawn too, and
these import Chainer before any line of ours runs. So `allhands_compat.pth`, which is installed
beside the package, calls `install_hook` when Python starts. That costs well under a millisecond:
the mends themselves wait for the first import of Chainer. For the same reason the imports of this
file stand inside its functions.
"""

import sys

MENDED_ON_IMPORT_OF = frozenset({"chainer", "chainermn", "chainerx"})


class Hook:
    """A meta-path finder that finds nothing: it mends, once, when Chainer is first looked for."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MENDED_ON_IMPORT_OF:
            remove_hook()
            mend()
        return None


def install_hook() -> None:
    """Make the first import of Chainer call `mend`. Calling it again changes nothing."""
    if Hook not in sys.meta_path and "chainer" not in sys.modules:
        sys.meta_path.insert(0, Hook)


def remove_hook() -> None:
    """Undo `install_hook`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not Hook]


def mend() -> None:
    """Apply every mend of the table to this process. Comes before the import of Chainer."""
    _mend_environment_check()
    _mend_pkg_resources()
    _mend_numpy_float()
    _mend_numpy_sctypes()
    _mend_multiprocess_iterator()


def _mend_environment_check() -> None:
    from types import ModuleType

    module = ModuleType("chainer._environment_check", "Stands in for Chainer's: finds nothing.")
    module.check = lambda: None
    sys.modules.setdefault(module.__name__, module)


def _mend_pkg_resources() -> None:
    from importlib.machinery import ModuleSpec
    from importlib.util import find_spec
    from types import ModuleType

    if find_spec("pkg_resources") is not None:
        return

    class ResolutionError(Exception):
        """A requirement is not met."""

    class WorkingSet:
        """The installed distributions."""

        def require(self, *requirements: str) -> None:
            from importlib.metadata import PackageNotFoundError, version

            from packaging.requirements import Requirement

            for text in requirements:
                wanted = Requirement(text)
                try:
                    found = version(wanted.name)
                except PackageNotFoundError:
                    raise ResolutionError(f"{text} is required, and is not installed") from None
                if not wanted.specifier.contains(found, prereleases=True):
                    raise ResolutionError(f"{text} is required, and {found} is installed")

    module = ModuleType("pkg_resources", "Stands in for what setuptools 82 removed.")
    module.__spec__ = ModuleSpec(module.__name__, loader=None)
    module.ResolutionError, module.WorkingSet = ResolutionError, WorkingSet
    module.fixup_namespace_packages = lambda folder: None  # pytest calls it, if there is a module
    sys.modules[module.__name__] = module


def _mend_numpy_float() -> None:
    import numpy as np

    if not hasattr(np, "float"):
        np.float = float


def _mend_numpy_sctypes() -> None:
    import numpy as np

    if not hasattr(np, "sctypes"):
        np.sctypes = {
            "int": [np.int8, np.int16, np.int32, np.int64],
            "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
            "float": [np.float16, np.float32, np.float64, np.longdouble],
            "complex": [np.complex64, np.complex128, np.clongdouble],
            "others": [bool, object, bytes, str, np.void],
        }


def _mend_multiprocess_iterator() -> None:
    if sys.version_info < (3, 13):
        return
    import atexit
    import gc

    @atexit.register
    def finalize_iterators() -> None:
        module = sys.modules.get("chainer.iterators.multiprocess_iterator")
        if module is not None:
            for thing in gc.get_objects():
                if type(thing) is module.MultiprocessIterator:
                    thing.finalize()


def chainermn_intruder() -> str | None:
    """Is PyPI's old package `chainermn` installed? Then the sentence that says so, otherwise None.

    Chainer 7 brings its own `chainermn`. The package of that name (1.3.1, for Chainer 4) writes its
    files over Chainer's, and `pip check` sees nothing wrong.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("chainermn")
    except PackageNotFoundError:
        return None
    return (
        f"PyPI's package chainermn {found} is installed, and has overwritten files of Chainer, "
        "which brings a chainermn of its own. Take both away, then install Chainer again: "
        f"{sys.executable} -m pip uninstall --yes chainermn chainer; make env"
    )
