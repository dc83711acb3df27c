"""The same tests on both record cores."""

import importlib
from types import ModuleType

import pytest

from ottla.records import batch, codec

CORES = ("reference", "_native")


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A record core, and for the time of the test the one that `batch` works with."""
    try:
        module = importlib.import_module(f"ottla.records.{request.param}")
    except ImportError:
        pytest.skip("the compiled core is not built")
    for name in codec.__all__:
        if hasattr(module, name):
            monkeypatch.setattr(codec, name, getattr(module, name))
    monkeypatch.setattr(batch, "read_header", module.read_header)
    return module
