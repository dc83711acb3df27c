"""What the build says where the compiled core cannot be built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("Cython")
pytest.importorskip("setuptools")

ROOT = Path(__file__).parents[2]
SOURCES = ("records/_native.pyx", "net/_shortcut.pyx", "broker/_repeat.pyx")


def build(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs our setup.py on sources of a line each, with a compiler that fails."""
    shutil.copy(ROOT / "setup.py", directory)
    for name in SOURCES:
        source = directory / "src" / "ottla" / name
        source.parent.mkdir(parents=True)
        source.write_text("nothing = None\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "built", "--build-temp", "built"],
        cwd=directory,
        env={**clean, "CC": "false", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_core_that_cannot_be_built_is_said_and_the_rest_is_installed(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("THE COMPILED CORE OF OTTLA WAS NOT BUILT") == len(SOURCES)
    assert "(ottla.records._native: " in done.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_where_the_core_is_required_the_build_fails(tmp_path: Path) -> None:
    done = build(tmp_path, OTTLA_REQUIRE_COMPILED="1")
    assert done.returncode != 0
    assert "_native.c" in done.stderr


def test_where_pure_python_is_asked_for_nothing_is_built_or_said(tmp_path: Path) -> None:
    done = build(tmp_path, OTTLA_PURE_PYTHON="1")
    assert done.returncode == 0, done.stderr
    assert "NOT BUILT" not in done.stderr
