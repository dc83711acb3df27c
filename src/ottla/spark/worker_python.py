"""The Python of Spark's workers on this machine: this one, with the installed pyspark in place of Spark's zip file.

Spark puts its `pyspark.zip` at the front of every worker's PYTHONPATH. A zip file holds no compiled modules, so each
process that Spark starts compiles pyspark again: 0.9 s of CPU, where the installed package takes 0.2 s. A first query
starts half a dozen of them, and Spark gives up on one that is not there within ten seconds. So workers are started
through a script of two lines that leaves the zip file out. It is kept in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import sys
from pathlib import Path

from ottla.runtime.cache import cache_directory

log = logging.getLogger(__name__)


def worker_python() -> str:
    """The program to start workers with; this very Python where there is nothing to gain, or no place for a script."""
    if not _is_installed_package():
        return sys.executable
    script = _script(os.environ.get("PYTHONPATH", ""))
    path = cache_directory() / "spark" / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        _write_once(path, script)
    except OSError as error:
        log.warning("Spark's workers start more slowly than they could: %s", error)
        return sys.executable
    return str(path)


def _is_installed_package() -> bool:
    """Is the pyspark of this process a package with its own Spark, which workers find without help?"""
    import pyspark

    package = os.path.dirname(pyspark.__file__)
    return os.path.isdir(package) and os.environ.get("SPARK_HOME", package) == package


def _script(python_path: str) -> str:
    return f'#!/bin/sh\nexport PYTHONPATH={shlex.quote(python_path)}\nexec {shlex.quote(sys.executable)} "$@"\n'


def _write_once(path: Path, script: str) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(script)
    unfinished.chmod(0o755)
    unfinished.rename(path)
