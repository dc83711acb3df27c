"""Wall clocks that jump, for brokers in processes of their own.

Python imports `sitecustomize` from its path before anything else: the one that is written here adds to `time.time` what
a file with the number of the process says. So the programs under test have no switch for it.

    clocks = WallClocks(directory)
    monkeypatch.setenv("PYTHONPATH", clocks.python_path)      # before the brokers start
    clocks.set_ahead(broker.pid, seconds=3600)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HOOK: Final = """\
import os
import time

_directory = os.path.dirname(__file__)
_real_time = time.time


def _shifted_time():
    try:
        with open(os.path.join(_directory, str(os.getpid()))) as file:
            return _real_time() + float(file.read())
    except FileNotFoundError:
        return _real_time()


time.time = _shifted_time
"""


class WallClocks:
    """The clocks of all processes that start with `python_path` as their PYTHONPATH."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "sitecustomize.py").write_text(HOOK)
        self._directory = directory

    @property
    def python_path(self) -> str:
        before = os.environ.get("PYTHONPATH")
        return os.pathsep.join([str(self._directory), *([before] if before else [])])

    def set_ahead(self, pid: int, seconds: float) -> None:
        """At once, and until it is set again; negative seconds are behind."""
        draft = self._directory / f"{pid}.draft"
        draft.write_text(str(seconds))
        draft.rename(self._directory / str(pid))
