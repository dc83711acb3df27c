"""The examples of the admin client's guide run, one after the other, against a broker; it names every call."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla import aio

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "admin.md"


def test_the_examples_of_the_guide_run(run_examples: Callable[[Path], dict[str, Any]]) -> None:
    shared = run_examples(PAGE)
    assert shared["behind"] == {shared["place"]: 3}
    assert (shared["start"], shared["end"]) == (4, 10)


def test_the_guide_names_every_call() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE.read_text().split("## All calls")[1]))
    calls = {name for name in dir(aio.Admin) if not name.startswith("_")} - {"start", "close"}
    assert named == calls
