"""Values that are written on the command line in a form of their own."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.command import CommandError, ExitCode


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs; the value may hold `=` and may be empty."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandError(
                ExitCode.USAGE, f"{pair!r} is no setting", "write NAME=VALUE, such as retention.ms=3600000"
            )
        settings[name.strip()] = value
    return settings


def parse_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2`: the replicas of each partition, partitions by comma, brokers by colon; the first one leads."""
    try:
        assignment = [[_broker_id(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE,
            f"{text!r} is no assignment of replicas",
            "write broker ids as 0:1,1:2, where partition 0 is on brokers 0 and 1, and partition 1 on 1 and 2",
        ) from error
    for number, replicas in enumerate(assignment):
        if len(set(replicas)) != len(replicas):
            raise CommandError(ExitCode.USAGE, f"partition {number} is twice on one broker", "name each broker once")
        if len(replicas) != len(assignment[0]):
            raise CommandError(
                ExitCode.USAGE,
                f"partition {number} has {len(replicas)} replicas and partition 0 has {len(assignment[0])}",
                "name equally many for each",
            )
    return assignment


def _broker_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)
