"""The list of planted bugs is up to date: each has its place in the code, and the tests that must notice are there."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

MUTANTS = Path(__file__).parents[1] / "mutants"


def test_every_planted_bug_has_its_place_and_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MUTANTS))
    catalogue = import_module("catalogue")
    monkeypatch.delitem(sys.modules, "catalogue")
    mutants = catalogue.load()
    assert len(mutants) >= 50
    assert catalogue.complaints(mutants) == [], "tests/mutants says what was there before: change it with the code"
