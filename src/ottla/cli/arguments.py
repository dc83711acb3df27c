"""Values of arguments that have a format of their own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.command import CommandError, ExitCode

RECORD_BYTES_MAX: Final = 100_000_000


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs; the value may contain `=` and may be empty."""
    return dict(_parse_pairs(pairs, "setting", "retention.ms=3600000"))


def parse_quotas(pairs: Iterable[str]) -> dict[str, str]:
    """The same for quotas."""
    return dict(_parse_pairs(pairs, "quota", "producer_byte_rate=1048576"))


def parse_headers(pairs: Iterable[str]) -> list[tuple[str, str]]:
    """The same for the headers of records, of which several may have one name."""
    return _parse_pairs(pairs, "header", "source=import")


def _parse_pairs(pairs: Iterable[str], noun: str, example: str) -> list[tuple[str, str]]:
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandError(ExitCode.USAGE, f"{pair!r} is not a {noun}", f"write NAME=VALUE, such as {example}")
        parsed.append((name.strip(), value))
    return parsed


def parse_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2`: the replicas of each partition, partitions by comma, brokers by colon; the first one leads."""
    try:
        assignment = [[_broker_id(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE,
            f"{text!r} is not an assignment of replicas",
            "write broker ids as 0:1,1:2, where partition 0 is on brokers 0 and 1, and partition 1 on 1 and 2",
        ) from error
    for number, replicas in enumerate(assignment):
        if len(set(replicas)) != len(replicas):
            raise CommandError(
                ExitCode.USAGE, f"partition {number} has two replicas on one broker", "name each broker once"
            )
        if len(replicas) != len(assignment[0]):
            raise CommandError(
                ExitCode.USAGE,
                f"partition {number} has {len(replicas)} replicas and partition 0 has {len(assignment[0])}",
                "give every partition the same number",
            )
    return assignment


def whole_number(text: str) -> int:
    """What `type=int` of an argument stands for, with words of ours."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def positive_number(text: str) -> int:
    """1 or more: the `type` of an argument."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 1 on, not {text!r}")
    return value


def record_size(text: str) -> int:
    """The bytes of a record that is made up, which is held in memory: the `type` of an argument."""
    value = positive_number(text)
    if value > RECORD_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"must be at most {RECORD_BYTES_MAX}, not {text!r}")
    return value


def directory(text: str) -> Path:
    """A directory, which need not exist yet: the `type` of an argument."""
    if not text:  # of a variable that is not set; it would be the current one
        raise argparse.ArgumentTypeError("must be the name of a directory, and not empty")
    path = Path(text)
    for place in (path, *path.parents):
        if place.exists():
            if not place.is_dir():
                raise argparse.ArgumentTypeError(f"{place} is not a directory")
            break
    return path


def require_different(directories: Sequence[Path]) -> None:
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise CommandError(ExitCode.USAGE, "a directory is named twice", "name each of log.dirs once")


def _broker_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)
