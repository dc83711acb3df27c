"""CRC-32C by tables. `_crc32c.h` has the compiled ones."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from ottla.records.reference.buffers import byte_view

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CRC32C_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_CRC_CHUNK_BYTES = 16384


@cache
def _crc_by_byte() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


@cache
def _crc_by_pair() -> tuple[list[int], list[int]]:
    """Two tables over 16 bits: the first pair of a word, with two zero bytes behind it, and the last pair."""
    by_byte = _crc_by_byte()
    last = []
    for crc in range(65536):
        crc = (crc >> 8) ^ by_byte[crc & 0xFF]
        last.append((crc >> 8) ^ by_byte[crc & 0xFF])
    first = [(crc >> 16) ^ last[crc & 0xFFFF] for crc in last]
    return first, last


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C of `data`, going on from `value`. Four bytes a step: several times as fast as byte by byte."""
    by_byte = _crc_by_byte()
    first, last = _crc_by_pair()
    crc = value ^ 0xFFFFFFFF
    with byte_view(data) as view:
        whole = len(view) // 4 * 4
        for start in range(0, whole, _CRC_CHUNK_BYTES):
            chunk = view[start : min(start + _CRC_CHUNK_BYTES, whole)]
            for word in struct.unpack(f"<{len(chunk) // 4}I", chunk):
                crc ^= word
                crc = first[crc & 0xFFFF] ^ last[crc >> 16]
        for byte in view[whole:]:
            crc = (crc >> 8) ^ by_byte[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
