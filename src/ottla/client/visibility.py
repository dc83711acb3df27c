"""Which batches of a Fetch answer a consumer may see. Pure.

Markers and other control batches are for nobody. With read_committed the broker sends nothing beyond the last stable
offset, and names the transactions that were aborted: a batch of one of them is passed over, from the first offset that
is named until its marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, RecordsError
from ottla.records import batch
from ottla.records.batch import BatchHeader, ScanEnd
from ottla.records.control import read_marker

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Aborted(NamedTuple):
    """A transaction that was aborted: from that offset on, batches of that producer do not count."""

    producer_id: int
    first_offset: int


class Located(NamedTuple):
    """A batch and where it starts."""

    header: BatchHeader
    position: int


def whole_batches(data: Buffer, *, checks_crcs: bool = True) -> list[Located]:
    """The batches of an answer. Its end may cut one off, which comes again with the next; anything else is damage."""
    found = batch.scan(data, check_crc=checks_crcs)
    if found.ended is ScanEnd.BAD:
        raise RecordsError(ErrorCode.CORRUPT_MESSAGE, f"the broker sent damaged records: {found.problem}")
    if found.ended is ScanEnd.LEGACY:
        raise RecordsError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "the broker sent records of a format before Kafka 0.11"
        )
    return list(map(Located, found.headers, found.positions))


def visible(data: Buffer, batches: Iterable[Located], aborted: Iterable[Aborted]) -> Iterator[Located]:
    """The batches that a consumer may see; `aborted` is empty with read_uncommitted."""
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    open_aborted: set[int] = set()
    for located in batches:
        header = located.header
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_aborted.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in open_aborted and _is_abort(data, located):
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            yield located


def _is_abort(data: Buffer, located: Located) -> bool:
    marker = read_marker(data, located.position)
    return marker is not None and not marker.commit
