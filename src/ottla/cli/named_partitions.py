"""Partitions as they are named on the command line: all of a topic, or some by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.command import CommandError, ExitCode
from ottla.client.admin.admin import Admin
from ottla.ids import TopicPartition


async def named_partitions(admin: Admin, names: Sequence[str]) -> list[TopicPartition]:
    """`orders` is all partitions of a topic, `orders:0,2` some."""
    found: dict[TopicPartition, None] = {}
    for text in names:
        name, colon, numbers = text.partition(":")
        topic = await admin.describe_topic(name)
        wanted = [topic.partition(_number(text, part)) for part in numbers.split(",")] if colon else topic.partitions
        found.update(dict.fromkeys(TopicPartition(name, each.partition) for each in wanted))
    return sorted(found)


def _number(text: str, part: str) -> int:
    if not (part.isascii() and part.isdecimal()):
        raise CommandError(ExitCode.USAGE, f"{text!r} is not a list of partitions", "write TOPIC or TOPIC:0,2")
    return int(part)
