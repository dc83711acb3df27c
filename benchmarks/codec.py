"""The record codec on one core: encode and decode lists and Arrow columns, validate, checksums, compression.

Records have values of 100 bytes and no keys, 10,000 to a batch; other clients' codecs run beside ours on the
same records. CPU time of this process, the best of several rounds. `python benchmarks/codec.py --json` prints
the figures alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.records import batch, codec, reference
from ottla.records.compression import compress, decompress
from ottla.records.layout import Compression

RECORDS = 10_000
VALUE_BYTES = 100
T = 1_700_000_000_000
ROUNDS = 15
# What prototypes reached, in M records/s; the codec is to be within a fifth of them.
WANTED = {
    "encode lists": 39,
    "decode lists": 32,
    "encode Arrow": 41,
    "decode Arrow": 43,
    "validate records": 140,
}


def best_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - started)
    return max(best, 1) / 1e9


def millions(work: Callable[[], object], count: int = RECORDS, rounds: int = ROUNDS) -> float:
    return round(count / best_seconds(work, rounds) / 1e6, 2)


def megabytes(work: Callable[[], object], size_bytes: int) -> int:
    repeats = max(1, 200_000 // size_bytes)
    seconds = best_seconds(lambda: [work() for _ in range(repeats)], 5)
    return round(size_bytes * repeats / seconds / 1e6)


def ours(values: list[bytes]) -> dict[str, float]:
    data = batch.build(None, values, T)
    header = batch.read_header(data)
    section = bytes(batch.records_of(data))
    figures = {
        "encode lists": millions(lambda: batch.build(None, values, T)),
        "decode lists, heap given back": millions(lambda: batch.decode(data)),
        "validate records": millions(lambda: codec.check_records(section, header, True), rounds=100),
        "check a batch, checksum included": millions(lambda: batch.check(data), rounds=100),
    }
    # CPython unmaps memory once all of it is free: when nothing else lives, every round pays for new pages. A
    # process with other objects around does not, which is the usual case.
    pool = [bytes(VALUE_BYTES) for _ in range(40 * RECORDS)]
    alive = pool[::40]
    del pool
    figures["decode lists"] = millions(lambda: batch.decode(data), rounds=40)
    del alive
    small = batch.build(None, values[:1], T)
    figures["check of one record, µs"] = round(
        1e6 / 1000 * best_seconds(lambda: [batch.check(small) for _ in range(1000)]), 2
    )
    return figures


def with_arrow(values: list[bytes]) -> dict[str, float]:
    try:
        import pyarrow as pa

        from ottla.records import arrow
    except ImportError:
        return {}
    column = pa.array(values, pa.binary())
    times = pa.array([T] * len(values), pa.int64())
    data = batch.build(None, values, T)
    return {
        "encode Arrow": millions(lambda: arrow.build(None, column, times), rounds=40),
        "decode Arrow": millions(lambda: arrow.decode(data), rounds=40),
    }


def plain_python(values: list[bytes]) -> dict[str, float]:
    few = values[:2000]
    section = reference.encode_records(None, few, T, None, None, T, 0)
    return {
        "encode lists": millions(lambda: reference.encode_records(None, few, T, None, None, T, 0), len(few), 3),
        "decode lists": millions(lambda: reference.decode_records(section, len(few), 0, T, None), len(few), 3),
    }


def other_client(module_name: str, values: list[bytes]) -> dict[str, float]:
    """The record builder and reader of kafka-python or aiokafka, which share their interface."""
    try:
        module = importlib.import_module(f"{module_name}.record.default_records")
    except ImportError:
        return {}
    few = values[:5000]

    def encode() -> bytes:
        builder = module.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for offset, value in enumerate(few):
            builder.append(offset, timestamp=T, key=None, value=value, headers=[])
        return bytes(builder.build())

    data = encode()

    def decode() -> None:
        for record in module.DefaultRecordBatch(data):
            _ = record.value, record.timestamp, record.offset

    return {
        "encode lists": millions(encode, len(few), 5),
        "decode lists": millions(decode, len(few), 5),
    }


def checksums() -> dict[str, float]:
    figures = {}
    for size in (1024, 16 * 1024, 1 << 20):
        data = random.Random(1).randbytes(size)
        figures[f"{size} B, GB/s"] = round(megabytes(partial(codec.crc32c, data), size) / 1000, 2)
    return figures


def scan_speed(values: list[bytes]) -> dict[str, float]:
    one = bytes(batch.build(None, values[:150], T))
    log = one * ((64 << 20) // len(one))
    return {"16 KiB batches, GB/s": round(len(log) / best_seconds(lambda: batch.scan(log), 5) / 1e9, 2)}


def payload(size: int) -> bytes:
    """Text with the repetition of events: it shrinks to a quarter."""
    rng = random.Random(1)
    cities = ("Ljubljana", "Praha", "Wien", "Kraków")
    out = bytearray()
    while len(out) < size:
        event = {"id": rng.randrange(10**6), "user": f"user-{rng.randrange(1000)}", "city": rng.choice(cities)}
        out += json.dumps({**event, "amount": rng.random()}).encode()
    return bytes(out[:size])


def compression_speeds() -> dict[str, dict[str, Any]]:
    """MB/s of plain data in and out, by codec and size, and of the other libraries that were considered."""
    tables: dict[str, dict[str, Any]] = {}
    for size in (1024, 16 * 1024, 1 << 20):
        data = payload(size)
        for kind in Compression:
            if not kind:
                continue
            packed = bytes(compress(kind, data))
            row = tables.setdefault(kind.name.lower(), {})
            row[str(size)] = {
                "compress": megabytes(partial(compress, kind, data), size),
                "decompress": megabytes(partial(decompress, kind, packed), size),
                "ratio": round(len(packed) / size, 3),
            }
        for name, functions in alternatives(data).items():
            pack, unpack, packed = functions
            tables.setdefault(name, {})[str(size)] = {
                "compress": megabytes(pack, size),
                "decompress": megabytes(unpack, size),
                "ratio": round(len(packed) / size, 3),
            }
    return tables


def alternatives(data: bytes) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], bytes]]:
    """Libraries that were not chosen, for docs/decisions/0003-codec-libraries.md."""
    found: dict[str, tuple[Callable[[], Any], Callable[[], Any], bytes]] = {}
    fast = zlib.compress(data, 1, 31)
    found["gzip, zlib level 1"] = (lambda: zlib.compress(data, 1, 31), lambda: zlib.decompress(fast, 31), fast)
    try:
        from isal import isal_zlib

        packed = isal_zlib.compress(data, 1, 31)
        found["gzip, isal level 1"] = (
            lambda: isal_zlib.compress(data, 1, 31),
            lambda: isal_zlib.decompress(packed, 31),
            packed,
        )
    except ImportError:
        pass
    import cramjam

    for name, module in (
        ("lz4, cramjam", cramjam.lz4),
        ("zstd, cramjam", cramjam.zstd),
        ("gzip, cramjam", cramjam.gzip),
    ):
        packed_by = bytes(module.compress(data))
        found[name] = (
            partial(module.compress, data),
            partial(module.decompress, packed_by),
            packed_by,
        )
    return found


def run() -> dict[str, Any]:
    values = [random.Random(n).randbytes(VALUE_BYTES) for n in range(RECORDS)]
    return {
        "native": codec.NATIVE,
        "records_per_batch": RECORDS,
        "value_bytes": VALUE_BYTES,
        "wanted_millions_per_second": WANTED,
        "millions_per_second": {
            "ottla": ours(values) | with_arrow(values),
            "ottla, plain Python": plain_python(values),
            "kafka-python": other_client("kafka", values),
            "aiokafka": other_client("aiokafka", values),
        },
        "crc32c": checksums(),
        "scan": scan_speed(values),
        "compression_mb_per_second": compression_speeds(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    arguments = parser.parse_args()
    figures = run()
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"compiled core: {'yes' if figures['native'] else 'no'}")
    for who, row in figures["millions_per_second"].items():
        for what, value in row.items():
            wanted = WANTED.get(what) if who == "ottla" else None
            note = f"   wanted {wanted}" if wanted else ""
            print(f"{who:22} {what:36} {value:9.2f}{note}")
    for title in ("crc32c", "scan"):
        for what, value in figures[title].items():
            print(f"{title:22} {what:36} {value:9.2f}")
    for name, sizes in figures["compression_mb_per_second"].items():
        for size, row in sizes.items():
            print(f"{name:22} {size:>8} B   {row['compress']:6} / {row['decompress']:6} MB/s   ratio {row['ratio']}")


if __name__ == "__main__":
    main()
