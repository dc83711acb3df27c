"""A short run of the record tests and fuzzer under the address sanitizer; `make asan` is the long one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("asan.sh")


def libasan_is_there() -> bool:
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    return found.returncode == 0 and Path(found.stdout.strip()).is_absolute()


def test_the_compiled_core_is_clean_under_the_address_sanitizer():
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    if not libasan_is_there():
        pytest.skip("gcc has no libasan")
    pytest.importorskip("Cython")
    environment = os.environ | {"PYTHON": sys.executable, "OTTLA_FUZZ_CASES": "20"}
    arguments = ["-x", "-k", "not bomb and not reference", "-p", "no:xdist"]
    run = subprocess.run([str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout[-6000:]}\n{run.stderr[-6000:]}"
    assert " passed" in run.stdout
