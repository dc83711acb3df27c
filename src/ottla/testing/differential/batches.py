"""The record batches of histories: sound ones, and ones with one thing wrong in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Final

from ottla.records import batch, codec
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, Compression
from ottla.testing.differential.references import Known, ProducerEpoch, ProducerId, Reference

BASE_TIME_MS: Final = 1_700_000_000_000
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bits that are turned over, or bytes that are cut off or added; `seals` makes the checksum right again."""

    at: int = 0
    mask: int = 0
    size_change: int = 0
    seals: bool = False

    def applied(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        if self.mask:
            damaged[self.at % len(damaged)] ^= self.mask
        if self.size_change < 0:
            del damaged[self.size_change :]
        damaged += bytes(max(self.size_change, 0))
        if self.seals and len(damaged) > ATTRIBUTES_AT:
            _CRC.pack_into(damaged, CRC_AT, codec.crc32c(bytes(damaged[ATTRIBUTES_AT:])))
        return bytes(damaged)


@dataclass(frozen=True, slots=True)
class Batch(Reference):
    """A batch of a producer, or of nobody in particular."""

    keys: tuple[bytes | None, ...]
    times: tuple[int, ...]
    compression: Compression = Compression.NONE
    producer_id: ProducerId | int = -1
    producer_epoch: ProducerEpoch | int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    damage: Damage | None = None
    copies: int = 1

    def resolve(self, known: Known) -> bytes:
        data = bytes(
            batch.build(
                self.keys,
                [b"value-%d" % number for number in range(len(self.keys))],
                [BASE_TIME_MS + time if time >= 0 else time for time in self.times],
                compression=self.compression,
                producer_id=_number(self.producer_id, known),
                producer_epoch=_number(self.producer_epoch, known),
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
                is_control=self.is_control,
            )
        )
        if self.damage is not None:
            data = self.damage.applied(data)
        return data * self.copies


def _number(value: Reference | int, known: Known) -> int:
    return value.resolve(known) if isinstance(value, Reference) else value


def draw_damage(rng: Random) -> Damage:
    kind = rng.choice(("flip", "header", "header", "record", "size"))
    if kind == "flip":
        return Damage(rng.randrange(200), 1 << rng.randrange(8))
    if kind == "header":  # a sound checksum over a header that says something else; not the length of the batch
        return Damage(rng.choice([*range(8), *range(12, 17), *range(21, HEADER_BYTES)]), 1 << rng.randrange(8), 0, True)
    if kind == "record":
        return Damage(HEADER_BYTES + rng.randrange(40), 1 << rng.randrange(8), 0, True)
    return Damage(size_change=rng.choice((-1, -5, -70, 1, 8)))


def draw_batch(rng: Random, producer: str | bool | None, *, sequence: int, needs_keys: bool) -> Batch:
    """`producer`: a transactional id, None for the idempotent producer, False for none."""
    count = rng.choice((1, 1, 1, 2, 3))
    keys = tuple(rng.choice((b"a", b"b", b"c") if needs_keys else (b"a", b"b", None)) for _ in range(count))
    times = tuple(rng.choice((0, 1, 2, 5, 10, -1)) if rng.random() < 0.3 else number for number in range(count))
    compression = rng.choice((*(Compression.NONE,) * 5, *Compression))
    damage = draw_damage(rng) if rng.random() < 0.15 else None
    copies = 2 if rng.random() < 0.03 else 1
    is_control = rng.random() < 0.02
    if isinstance(producer, bool):
        return Batch(keys, times, compression, damage=damage, copies=copies, is_control=is_control)
    return Batch(
        keys,
        times,
        compression,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(producer, rng.choice((*(0,) * 12, -1, 1))),
        base_sequence=rng.choice((*(sequence,) * 8, 0, max(sequence - 1, 0), sequence + 1, 2**31 - 1, -1)),
        is_transactional=(producer is not None) != (rng.random() < 0.05),
        is_control=is_control,
        damage=damage,
        copies=copies,
    )
