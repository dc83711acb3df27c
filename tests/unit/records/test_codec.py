import os
import subprocess
import sys

import pytest

SHOW = "from ottla.records import codec; print(codec.NATIVE, codec.core.__name__)"


def shown(**environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "OTTLA_PURE_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", SHOW], env=clean | environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_compiled_core_is_taken_where_it_was_built():
    pytest.importorskip("ottla.records._native")
    assert shown() == "True ottla.records._native"


def test_the_environment_can_force_the_reference():
    assert shown(OTTLA_PURE_PYTHON="1") == "False ottla.records.reference"


def test_both_cores_have_the_same_interface():
    native = pytest.importorskip("ottla.records._native")
    from ottla.records import codec, reference

    names = set(codec.__all__) - {"NATIVE", "core"}
    assert {name for name in names if not hasattr(native, name)} == set()
    assert {name for name in names if not hasattr(reference, name)} == set()
