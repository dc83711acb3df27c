"""The Python of Spark's workers on this machine: this one, with the installed pyspark in place of Spark's zip file.

Spark puts its `pyspark.zip` at the front of every worker's PYTHONPATH. A zip file holds no compiled modules, so each
process that Spark starts compiles pyspark again: 0.9 s of CPU, where the installed package takes 0.2 s. A first query
starts half a dozen of them. So workers are started through a script of a few lines that leaves the zip file out. It is
kept in the user's cache directory. Workers that Spark waits for, ten seconds and no longer, it starts with a connection
(`worker_start`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import sys
from pathlib import Path

from ottla.runtime.cache import cache_directory
from ottla.spark import worker_start

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
    python = shlex.quote(sys.executable)
    lines = ["#!/bin/sh", f"export PYTHONPATH={shlex.quote(python_path)}"]
    if _takes_connections():
        awaited = f"${{{worker_start.PATH_VARIABLE}}}${{{worker_start.PORT_VARIABLE}}}"
        start = shlex.quote(worker_start.__file__)
        lines.append(f'if [ "$1" = -m ] && [ -n "{awaited}" ]; then exec {python} -P {start} "$@"; fi')
    lines.append(f'exec {python} "$@"')
    return "".join(f"{line}\n" for line in lines)


def _takes_connections() -> bool:
    """Whether this pyspark connects in the way that `worker_start` goes before."""
    from pyspark import worker_util

    return hasattr(worker_util, "local_connect_and_auth") and hasattr(worker_util, "get_sock_file_to_executor")


def _write_once(path: Path, script: str) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(os.fsencode(script))  # paths in it may have any name
    unfinished.chmod(0o755)
    unfinished.rename(path)
