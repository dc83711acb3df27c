"""The two hashes that decide where things go: keys to partitions, and groups or transactions to coordinators.

Both are Java's arithmetic on 32 bits, so that every client and broker of a cluster comes to the same place.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(key: bytes) -> int:
    """The murmur2 hash of a record key, as the unsigned value of its 32 bits."""
    length = len(key)
    whole = length & ~3
    value = _SEED ^ length
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition to which a producer sends a record with that key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: signed 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _MASK
    return value - (1 << 32) if value >> 31 else value


def partition_of_coordinator(name: str, partitions: int) -> int:
    """The partition of an internal topic whose leader coordinates that group or transactional id."""
    value = java_string_hash(name)
    # The smallest integer has no positive counterpart in 32 bits; it counts as zero.
    return 0 if value == -(1 << 31) else abs(value) % partitions
