"""The list of planted bugs is up to date: each has its place in the code, and the tests that must notice are there."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "tests" / "mutants"


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("catalogue", monkeypatch)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return loaded("run", monkeypatch)


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(MUTANTS))
    module = import_module(name)
    for each in {name, "catalogue"}:
        monkeypatch.delitem(sys.modules, each)
    return module


def test_every_planted_bug_has_its_place_and_its_tests(catalogue: ModuleType) -> None:
    mutants = catalogue.load()
    assert len(mutants) >= 50
    assert catalogue.complaints(mutants) == [], "tests/mutants says what was there before: change it with the code"


def test_the_copy_has_every_page_that_a_test_may_read(run: ModuleType) -> None:
    assert {path.name for path in ROOT.glob("*.md")} <= set(run.COPIED)


def test_mutants_without_quick_tests_start_with_none(run: ModuleType) -> None:
    class Copy:
        def run(self, tests: Sequence[str], timeout_s: float, *options: str) -> tuple[int, str]:
            return (0, "") if tests else (1, "it ran everything")

    slow = [mutant for mutant in run.load() if not mutant.quick]
    assert slow, "some planted bugs are noticed by slow tests only"
    assert run.failure_without(slow, Copy(), jobs=1) is None
