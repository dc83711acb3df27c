"""What a coordinator's machine decides: records to write, and replies that are due once they are committed.

The machines of groups and transactions return these values and the runner carries them out: it appends the records as
one batch, calls `apply` for each, and sends the replies when the batch can no longer be lost.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.ids import NO_PRODUCER_ID

# Names a request whose reply is due. The runner makes tickets; to a machine they are opaque and hashable.
Ticket: TypeAlias = Hashable


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; without a value it is a tombstone."""

    # An instance of a `...Key` class of protocol/messages/group_records.py or transaction_records.py, and of its value;
    # or the bytes of both as they stand in the log, where a machine keeps them anyway.
    key: object
    value: object | None
    # The version in which the value is written.
    value_version: int = 0


@dataclass(slots=True)
class Decision:
    """What follows from one request or one timer."""

    # Appended as one batch, in order, all or none.
    records: list[CoordinatorRecord] = field(default_factory=list)
    # Each is delivered once the records are committed. A parked request has none yet: a later decision holds its reply.
    # A reply that is an `ErrorCode` is put in the words of its API by whoever asked.
    replies: list[tuple[Ticket, object]] = field(default_factory=list)
    # What is to be done elsewhere once the records are committed, after the replies: values that the runner hands to
    # its performer. Where the records are not written, nothing is done.
    effects: list[object] = field(default_factory=list)
    # Whose transaction the records belong to: they are written under its id and count once its marker is in the log.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
