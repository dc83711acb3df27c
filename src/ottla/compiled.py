"""The compiled core: whether it is here, and what is said where it is not.

Without it everything works on the Python reference, several times slower, so nobody should run that way unknowingly:
`ottla --version`, the start of a broker and a Spark worker say so. Whoever sets `OTTLA_PURE_PYTHON` knows already.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

PURE_PYTHON: Final = "OTTLA_PURE_PYTHON"
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


def complaint() -> str | None:
    """What to tell whoever runs without the compiled core, in a sentence; None where there is nothing to tell."""
    if is_pure_python_asked_for():
        return None
    missing = missing_parts()
    if not missing:
        return None
    return (
        f"the compiled core is missing ({', '.join(missing)}) and everything runs several times slower: install a C "
        f"compiler and the headers of Python {sys.version_info.major}.{sys.version_info.minor}, then ottla again with "
        "`pip install --force-reinstall --no-deps --verbose`, which shows why it is not built; "
        f"or set {PURE_PYTHON}=1 if it is meant to be so"
    )
