"""Where a batch went in its log: the answer to an append."""

from __future__ import annotations

from typing import NamedTuple

from ottla.storage.producer_state import ProducedBatch


class Appended(NamedTuple):
    """Where a batch went. A duplicate of an earlier batch names where that one went."""

    first_offset: int
    last_offset: int
    append_time_ms: int  # -1 where the records keep their producer's time
    is_duplicate: bool = False

    @classmethod
    def again(cls, produced: ProducedBatch) -> Appended:
        """Of a batch that was sent again. Its time is that of the producer's first batch, as in Kafka."""
        return cls(produced.first_offset, produced.last_offset, produced.timestamp, is_duplicate=True)
