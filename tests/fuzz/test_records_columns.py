"""Columns that lie to everything that takes some: an error or an answer, and never a byte beyond a buffer.

Sound columns are damaged at random: offsets, lengths of buffers, counts and selections. `OTTLA_FUZZ_CASES` (1000 if not
set) times 30 is what each test tries; chance is seeded, so a failure returns.
"""

from __future__ import annotations

import os
import random
from array import array

import pytest

from ottla.errors import RecordsError
from ottla.records import codec, reference
from ottla.records.layout import BinaryColumn, HeadersColumn

CASES = 30 * int(os.environ.get("OTTLA_FUZZ_CASES", "1000"))
T = 1_700_000_000_000
ODD = (-(2**31), -1, 0, 1, 2, 7, 100, 2**31 - 1)


def exact(data: bytes) -> array[int]:
    """A block of memory without a spare byte, so that the address sanitizer sees the first one too far."""
    return array("B", data)[:]


def damaged(rng: random.Random, numbers: list[int]) -> array[int]:
    """Numbers as int32, sometimes with an odd one among them or cut short."""
    numbers = list(numbers)
    if numbers and rng.random() < 0.1:
        numbers[rng.randrange(len(numbers))] = rng.choice(ODD)
    data = array("i", numbers).tobytes()
    return exact(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.05 else data)


def offsets_of(rng: random.Random, count: int, length_max: int) -> list[int]:
    offsets = [rng.choice((0, 0, 3))]
    for _ in range(count):
        offsets.append(offsets[-1] + rng.randrange(length_max))
    return offsets


def column(rng: random.Random, count: int) -> BinaryColumn:
    offsets = offsets_of(rng, count, 12)
    size = offsets[-1] if rng.random() < 0.95 else rng.randrange(offsets[-1] + 1)
    first_bit = rng.choice((0, 0, 3, 9))
    bits = exact(rng.randbytes((first_bit + count + 7) // 8 - (rng.random() < 0.05 and count > 0)))
    validity = bits if rng.random() < 0.5 else None
    return BinaryColumn(damaged(rng, offsets), exact(rng.randbytes(size)), validity, first_bit)


def headers(rng: random.Random, count: int) -> HeadersColumn:
    offsets = offsets_of(rng, count, 3)
    keys = column(rng, offsets[-1])
    if rng.random() < 0.8:
        keys = keys._replace(validity=None)
    return HeadersColumn(damaged(rng, offsets), keys, column(rng, offsets[-1]), None, 0)


def outcome(function, *arguments) -> object:
    """What it returns, with buffers as bytes; None where it refuses."""
    try:
        found = function(*arguments)
    except (ValueError, RecordsError):
        return None
    if isinstance(found, list):
        return [(each[0], bytes(each[1])) if isinstance(each, tuple) else each for each in found]
    return bytes(found) if not isinstance(found, tuple) else found


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_lie_are_refused_or_used_within_their_bounds(seed):
    rng = random.Random(seed)
    used = 0
    for case in range(CASES):
        count = rng.randrange(9)
        keys, values = rng.choice((None, column(rng, count))), column(rng, count)
        of_rows = headers(rng, count) if rng.random() < 0.4 else None
        rows = damaged(rng, [rng.randrange(count) for _ in range(rng.randrange(12))]) if count else None
        rows = rows if rng.random() < 0.7 else None
        times = T if rng.random() < 0.5 else exact(rng.randbytes(8 * count - (rng.random() < 0.05 and count > 0)))
        numbers = damaged(rng, [rng.randrange(4) for _ in range(count)])
        calls = {
            "encode_columns": (count, keys, values, times, of_rows, 0, rows),
            "split_columns": (count, keys, values, of_rows, rng.randrange(90), rows),
            "partitions_of_column": (count, values, rng.choice((1, 3, 2**31 - 1, 0)), 3),
            "group_rows": (numbers, rng.choice((4, 4, 3, 0, -1))),
        }
        for name, arguments in calls.items():
            ours = outcome(getattr(codec, name), *arguments)
            used += ours is not None
            # The reference looks at all rows, so it may refuse what was not selected; what it gives must be the same.
            theirs = outcome(getattr(reference, name), *arguments) if case % 20 == 0 else None
            assert theirs is None or ours == theirs, f"{name}, seed {seed}, case {case}"
    assert used > CASES, "most of what is tried gets past the first check"
