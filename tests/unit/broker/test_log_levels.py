"""Levels of loggers: shown, changed all together or not at all, and refused where there is no such logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.broker import log_levels
from ottla.config.dynamic import AlterOperation, SettingChange
from ottla.errors import ApiError, ErrorCode

PARENT, CHILD = "test-levels", "test-levels.child"


@pytest.fixture(autouse=True)
def _two_loggers() -> Iterator[None]:
    logging.getLogger(PARENT).setLevel(logging.ERROR)
    logging.getLogger(CHILD).setLevel(logging.NOTSET)
    yield
    logging.getLogger(PARENT).setLevel(logging.NOTSET)
    logging.getLogger(CHILD).setLevel(logging.NOTSET)


def set_to(name: str, level: str | None) -> SettingChange:
    return SettingChange(name, AlterOperation.SET, level)


def test_a_level_is_a_loggers_own_or_that_of_its_parent() -> None:
    assert log_levels.levels([CHILD]) == {CHILD: "ERROR"}
    log_levels.alter([set_to(CHILD, "TRACE")], validate_only=False)
    assert log_levels.levels([PARENT, CHILD]) == {PARENT: "ERROR", CHILD: "TRACE"}
    assert logging.getLogger(CHILD).isEnabledFor(logging.DEBUG)
    log_levels.alter([SettingChange(CHILD, AlterOperation.DELETE)], validate_only=False)
    assert log_levels.levels([CHILD]) == {CHILD: "ERROR"}


def test_all_loggers_are_listed_and_the_root() -> None:
    shown = log_levels.levels([])
    assert {"root", PARENT, CHILD, "ottla.broker.log_levels"} <= shown.keys()
    assert set(shown.values()) <= set(log_levels.LEVELS)


def test_the_level_of_a_package_is_that_of_its_modules() -> None:
    logging.getLogger("test-levels-package.module")
    log_levels.alter([set_to("test-levels-package", "DEBUG")], validate_only=False)
    assert log_levels.levels(["test-levels-package.module"]) == {"test-levels-package.module": "DEBUG"}


def test_a_logger_that_nobody_uses_is_neither_shown_nor_made() -> None:
    assert log_levels.levels(["test-levels.nobody"]) == {}
    with pytest.raises(ApiError, match="has no logger") as refusal:
        log_levels.alter([set_to("test-levels.nobody", "INFO")], validate_only=False)
    assert refusal.value.code == ErrorCode.INVALID_CONFIG
    assert "test-levels.nobody" not in logging.root.manager.loggerDict


@pytest.mark.parametrize(
    "bad",
    [
        set_to(CHILD, "debug"),
        set_to(CHILD, None),
        set_to(PARENT, "INFO"),  # a second time
        SettingChange(CHILD, AlterOperation.APPEND, "INFO"),
        SettingChange(CHILD, 9, "INFO"),
        SettingChange("root", AlterOperation.DELETE),
    ],
)
def test_one_bad_change_changes_nothing(bad: SettingChange) -> None:
    with pytest.raises(ApiError):
        log_levels.alter([set_to(PARENT, "INFO"), bad], validate_only=False)
    assert log_levels.levels([PARENT]) == {PARENT: "ERROR"}


def test_what_is_only_checked_changes_nothing() -> None:
    log_levels.alter([set_to(PARENT, "INFO")], validate_only=True)
    assert log_levels.levels([PARENT]) == {PARENT: "ERROR"}


@pytest.mark.parametrize("name", ["", "2", "x"])
def test_the_loggers_of_another_broker_are_refused(name: str) -> None:
    log_levels.check_is_this_broker("1", 1)
    with pytest.raises(ApiError) as refusal:
        log_levels.check_is_this_broker(name, 1)
    assert refusal.value.code == ErrorCode.INVALID_REQUEST
