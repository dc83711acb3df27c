"""The compiled core: whether it is here, and what is said where it is not.

Without it everything works on the Python reference, several times slower, so nobody should run that way unknowingly:
`ottla --version`, the start of a broker and a Spark worker say so. Whoever sets `OTTLA_PURE_PYTHON` knows already.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Final
from zipimport import zipimporter

PURE_PYTHON: Final = "OTTLA_PURE_PYTHON"
CODECS: Final = ("lz4", "zstandard")  # libraries that may be missing, as cramjam does their work then
PARTS: Final = ("ottla.records._native", "ottla.net._shortcut", "ottla.broker._repeat")


def is_pure_python_asked_for() -> bool:
    return bool(os.environ.get(PURE_PYTHON))


def missing_parts() -> list[str]:
    """The parts of the core that cannot be imported, with the reason where they are there all the same."""
    missing = []
    for name in PARTS:
        try:
            import_module(name)
        except ModuleNotFoundError:
            missing.append(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
    return missing


def zip_file() -> str | None:
    """The zip file that this package was loaded from, as `spark-submit --py-files` has it; None for a directory."""
    loader = __spec__.loader
    return loader.archive if isinstance(loader, zipimporter) else None


def complaint() -> str | None:
    """The warning for a process without the compiled core, as a sentence; None where it is installed."""
    if is_pure_python_asked_for():
        return None
    missing = missing_parts()
    if not missing:
        return None
    if (archive := zip_file()) is not None:
        return (
            f"ottla was loaded from {archive}, and Python loads no compiled modules from a zip file, without which "
            "everything runs several times slower: send a packed environment to the executors (spark-submit --archives,"
            f" docs/guide/spark-cluster.md) or install ottla there, or set {PURE_PYTHON}=1 if it is meant to be so"
        )
    return (
        f"the compiled core is missing ({', '.join(missing)}) and everything runs several times slower: install a C "
        f"compiler and the headers of Python {sys.version_info.major}.{sys.version_info.minor}, then ottla again with "
        "`pip install --force-reinstall --no-deps --verbose`, which shows why it is not built; "
        f"or set {PURE_PYTHON}=1 if it is meant to be so"
    )


def codec_complaint() -> str | None:
    """The warning for a process that compresses with the slower library; None where the usual ones are installed."""
    missing = [name for name in CODECS if find_spec(name) is None]
    if not missing:
        return None
    return (
        f"{' and '.join(missing)} cannot be imported, and cramjam, which takes longer, compresses in place of it: "
        f"`pip install {' '.join(missing)}` if there is a wheel or a C compiler"
    )
