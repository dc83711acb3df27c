"""The examples of the guide to migrating clients run against a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "migration-clients.md"


def test_the_examples_of_the_guide_run(run_examples: Callable[[Path], dict[str, Any]]) -> None:
    shared = run_examples(PAGE)
    assert shared["first"].value == b"a value"
    assert shared["message"].value() == b"a value"
