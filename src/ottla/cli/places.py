"""Places in a partition as they are written on the command line: an offset, a time, the last N, the ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from ottla.cli.command import CommandError, ExitCode
from ottla.client.admin.admin import Admin
from ottla.client.offsets import Isolation, OffsetSpec
from ottla.errors import ApiError
from ottla.ids import TopicPartition

PLACES_HELP: Final = (
    "an offset, earliest, latest, -N for the last N records, -1h30m for so long ago (units: ms, s, m, h, d, w), a time"
    " such as 2026-01-31T12:00:00 in UTC, or @ and milliseconds since 1970"
)

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+)(ms|[smhdw])")


class Kind(Enum):
    OFFSET = "offset"
    LAST = "last"
    SPEC = "spec"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Place:
    """An offset, that many records before the end, an `OffsetSpec`, or a time in milliseconds."""

    kind: Kind
    number: int


def parse_place(text: str, now_ms: int) -> Place:
    match text:
        case "earliest" | "beginning":
            return Place(Kind.SPEC, OffsetSpec.EARLIEST)
        case "latest" | "end":
            return Place(Kind.SPEC, OffsetSpec.LATEST)
    if re.fullmatch(r"[0-9]+", text):
        return Place(Kind.OFFSET, int(text))
    if re.fullmatch(r"-[0-9]+", text):
        return Place(Kind.LAST, -int(text))
    if re.fullmatch(rf"-(?:{_DURATION.pattern})+", text):
        return Place(Kind.TIME, now_ms - _duration_ms(text[1:]))
    if re.match(r"@|[0-9]{4}-", text):
        return Place(Kind.TIME, _milliseconds(text.removeprefix("@")))
    raise CommandError(
        ExitCode.USAGE,
        f"{text!r} is not a place in a partition",
        "use an offset, earliest, latest, -N for the last N, -1h for an hour ago, or a time",
    )


def _duration_ms(text: str) -> int:
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _DURATION.findall(text))


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(
            ExitCode.USAGE,
            f"{text!r} is not a time",
            "write milliseconds since 1970, or a time such as 2026-01-31T12:00:00 in UTC",
        ) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


async def offsets_at(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    place: Place,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Mapping[TopicPartition, int]:
    """Where the place is in each partition. An offset is taken as it is, within the partition or not."""
    match place.kind:
        case Kind.OFFSET:
            return dict.fromkeys(partitions, place.number)
        case Kind.SPEC:
            return await offsets_of(admin, partitions, place.number, isolation)
        case Kind.LAST:
            ranges = await ranges_of(admin, partitions, isolation)
            return {partition: max(begin, end - place.number) for partition, (begin, end) in ranges.items()}
        case Kind.TIME:
            ends = await offsets_of(admin, partitions, OffsetSpec.LATEST, isolation)
            found = await offsets_of(admin, partitions, place.number, isolation)
            # No record is that late: those to come are.
            return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}


async def ranges_of(
    admin: Admin, partitions: Sequence[TopicPartition], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset of each partition, and the one behind its last."""
    ends = await offsets_of(admin, partitions, OffsetSpec.LATEST, isolation)
    begins = await offsets_of(admin, partitions, OffsetSpec.EARLIEST, isolation)
    return {partition: (begins[partition], ends[partition]) for partition in partitions}


async def offsets_of(
    admin: Admin, partitions: Sequence[TopicPartition], spec: int, isolation: Isolation
) -> dict[TopicPartition, int]:
    """The offset of each partition at an `OffsetSpec` or a time; -1 where no record is that late."""
    found = await admin.list_offsets(dict.fromkeys(partitions, spec), isolation=isolation)
    offsets: dict[TopicPartition, int] = {}
    for partition, each in found.items():
        if isinstance(each, ApiError):
            raise each
        offsets[partition] = each.offset
    return offsets
