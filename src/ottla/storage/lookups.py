"""Looking into a batch for a time: at once where it is quick, and where it is not, elsewhere and then once more.

A batch of a few kilobytes can decompress to a hundred megabytes. Whoever must not be kept waiting hands over what it
knows already (`Looked`), gets a `LongLookupError` with the one lookup that takes long, lets a thread run it, and asks
again with its result. Nothing is kept in between, so whatever happens to the log meanwhile is seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.records import batch
from ottla.records.compression import DecompressedTooLargeError
from ottla.records.layout import BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

DECOMPRESSED_AT_ONCE_BYTES_MAX = 256 * 1024  # takes about a millisecond, by codec


class LookupKey(NamedTuple):
    """Which batch, by all that its header says, and what is looked for in it."""

    header: BatchHeader
    timestamp: int
    start_offset: int


Looked: TypeAlias = dict[LookupKey, "tuple[int, int] | None"]  # offset and timestamp of what was found


@dataclass(frozen=True, slots=True)
class TimeLookup:
    """One batch that has to be decompressed. `run` may run in any thread."""

    key: LookupKey
    data: Buffer

    def run(self) -> tuple[int, int] | None:
        return batch.first_at_or_after(self.data, self.key.timestamp, start_offset=self.key.start_offset)


class LongLookupError(Exception):
    """The answer is in a batch that takes long to decompress: run the lookup where nobody waits, and ask again."""

    def __init__(self, lookup: TimeLookup) -> None:
        super().__init__("a batch takes long to decompress")
        self.lookup = lookup


def first_at_or_after(lookup: TimeLookup, looked: Looked | None) -> tuple[int, int] | None:
    """Offset and timestamp of the record that is looked for; without `looked` it takes what it takes."""
    if looked is None:
        return lookup.run()
    if lookup.key in looked:
        return looked[lookup.key]
    try:
        return batch.first_at_or_after(
            lookup.data,
            lookup.key.timestamp,
            start_offset=lookup.key.start_offset,
            decompressed_bytes_max=DECOMPRESSED_AT_ONCE_BYTES_MAX,
        )
    except DecompressedTooLargeError:
        raise LongLookupError(lookup) from None
