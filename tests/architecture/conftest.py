"""The sources of the product, parsed once for all tests that look at them."""

import ast
import gc
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "ottla"


@pytest.fixture(scope="session")
def trees() -> dict[str, ast.Module]:
    """By the place of a module below src/ottla. Nobody changes them."""
    # They are a million objects that stay: looking for garbage among them would take longer than the parser does.
    gc.disable()
    parsed = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    gc.freeze()
    gc.enable()
    return parsed
