"""The levels of this process's loggers, as Kafka's resources of type BROKER_LOGGER.

They are shown and changed while the broker runs, and are gone when it stops: nothing is stored. The loggers belong to
the process, so brokers in one process share them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from ottla.config.dynamic import AlterOperation, SettingChange, check_changes
from ottla.config.setting import shortened
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.listed import Listed

logger = logging.getLogger(__name__)

ROOT: Final = "root"
TRACE: Final = 5  # Python has no such level: everything that is below DEBUG
# Kafka's names, the most important first.
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def check_is_this_broker(name: str, node_id: int) -> None:
    """Every broker has levels of its own, and knows no other's."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "loggers are those of one broker: its id is needed")
    if name != str(node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"these are the loggers of broker {node_id}, not of {shortened(name)}"
        )


def levels(wanted: Collection[str]) -> dict[str, str]:
    """The level of each logger, whether it is its own or inherited; of all of them where none is named."""
    names = wanted or [ROOT, *sorted(logging.root.manager.loggerDict)]
    return {name: _name_of(found.getEffectiveLevel()) for name in names if (found := _found(name)) is not None}


def alter(changes: Sequence[SettingChange], *, validate_only: bool) -> None:
    """Sets and removes levels: all of them, or none if one of the changes cannot be made."""
    check_changes(changes)
    checked = [_checked(change) for change in changes]
    if not validate_only:
        for found, level in checked:
            found.setLevel(level)
        logger.info("levels of loggers were changed: %s", Listed([f"{each.name}={each.value}" for each in changes]))


def _checked(change: SettingChange) -> tuple[logging.Logger, int]:
    """The logger, and the level that it gets: NOTSET to inherit one."""
    if change.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        operation = AlterOperation(change.operation).name
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation} is for lists; a logger has one level")
    if change.operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{shortened(change.name)}: unknown operation {change.operation}")
    found = _found(change.name)
    if found is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"this broker has no logger {shortened(change.name)}")
    if change.operation == AlterOperation.DELETE:
        if found is logging.root:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the root logger always has a level: set another one")
        return found, logging.NOTSET
    level = LEVELS.get(change.value or "")
    if level is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{shortened(change.value or '')} is not a level of logger {change.name}: take one of {', '.join(LEVELS)}",
        )
    return found, level


def _found(name: str) -> logging.Logger | None:
    """A logger that is in use, or has one below it; asking `logging` for any other name would make it."""
    if name == ROOT:
        return logging.root
    return logging.getLogger(name) if name in logging.root.manager.loggerDict else None


def _name_of(level: int) -> str:
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")
