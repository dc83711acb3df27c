"""kcat as a driver: every step is a run of the program, its output read back; `steps` says how it is spoken to."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from steps import RefusedError, decoded, encoded, raise_for, serve

BOOTSTRAP = sys.argv[1]
WAIT_S = 100
# kcat splits its input at delimiters, so they must be strings that no record holds.
RECORD_ENDS = "<|record|>"
KEY_ENDS = "<|key|>"
# It speaks of errors in words.
CODES = {"Broker: Unknown topic or partition": 3, "Broker: Message size too large": 10}


def hello() -> dict[str, str]:
    found = re.search(r"^Version (\S+)", _kcat("-V", with_broker=False).decode(), re.MULTILINE)
    assert found is not None
    return {"version": found[1]}


def describe_topic(topic: str) -> dict[str, int]:
    (found,) = json.loads(_kcat("-L", "-J", "-t", topic))["topics"]
    raise_for(CODES.get(found.get("error"), 0), found.get("error"))
    return {"partitions": len(found["partitions"])}


def describe_cluster() -> dict[str, Any]:
    found = json.loads(_kcat("-L", "-J"))
    brokers = []
    for each in found["brokers"]:
        host, port = each["name"].rsplit(":", 1)
        brokers.append({"id": each["id"], "host": host, "port": int(port)})
    return {"cluster_id": None, "controller": found["controllerid"], "brokers": brokers}


def list_offsets(topic: str, partition: int, at: str | int) -> dict[str, int]:
    timestamp = at if isinstance(at, int) else {"earliest": -2, "latest": -1}[at]
    found = re.search(rb"offset (-?\d+)", _kcat("-Q", "-t", f"{topic}:{partition}:{timestamp}"))
    assert found is not None
    return {"offset": int(found[1])}


def produce(
    topic: str, acks: str, codec: str, idempotent: bool, records: list[dict[str, Any]]
) -> dict[str, list[int | None]]:
    settings = {
        "acks": acks,
        "enable.idempotence": str(idempotent).lower(),
        "linger.ms": "20",
        "message.max.bytes": str(8 << 20),
        "compression.type": codec,
    }
    options = itertools.chain.from_iterable(("-X", f"{name}={value}") for name, value in settings.items())
    shared = ["-P", "-t", topic, "-K", KEY_ENDS, "-D", RECORD_ENDS, *options]
    # Partition, headers and whether empty means null are options of a whole run.
    for (partition, headers, has_null), group in itertools.groupby(records, _run_of):
        arguments = [*shared, "-p", str(partition)]
        for name, value in headers:
            arguments += ["-H", name if value is None else f"{name}={decoded(value).decode()}"]
        if has_null:
            arguments.append("-Z")
        _kcat(*arguments, given=b"".join(map(_line, group)))
    return {"offsets": [None] * len(records)}


def consume(topic: str, partitions: list[int], start: dict[str, int], count: int) -> dict[str, list[Any]]:
    offset = f"s@{start['timestamp']}" if "timestamp" in start else str(start["offset"])
    where = ["-p", str(partitions[0])] if len(partitions) == 1 else []
    form = "%p %o %T %K %S %k%s%h\\n"
    output = _kcat("-C", "-q", "-t", topic, *where, "-o", offset, "-c", str(count), "-f", form)
    return {"records": list(_records(output))}


def read_in_group(topic: str, group: str, count: int) -> dict[str, list[Any]]:
    settings = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200")
    output = _kcat("-G", group, "-q", "-c", str(count), "-f", "%p %o %T %K %S %k%s%h\\n", *settings, topic)
    return {"values": [record["value"] for record in _records(output)]}


def _run_of(record: dict[str, Any]) -> tuple[int, tuple[tuple[str, str | None], ...], bool]:
    headers = tuple((name, value) for name, value in record["headers"])
    return record["partition"], headers, record["key"] is None or record["value"] is None


def _line(record: dict[str, Any]) -> bytes:
    key, value = decoded(record["key"]), decoded(record["value"])
    front = b"" if key is None else key + KEY_ENDS.encode()
    return front + (value or b"") + RECORD_ENDS.encode()


def _records(output: bytes) -> Iterator[dict[str, Any]]:
    position = 0
    while position < len(output):
        front = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) ").match(output, position)
        assert front is not None, output[position : position + 100]
        partition, offset, timestamp, key_bytes, value_bytes = map(int, front.groups())
        key_at = front.end()
        value_at = key_at + max(key_bytes, 0)
        headers_at = value_at + max(value_bytes, 0)
        end = output.index(b"\n", headers_at)
        yield {
            "partition": partition,
            "offset": offset,
            "timestamp": timestamp,
            "key": None if key_bytes < 0 else encoded(output[key_at:value_at]),
            "value": None if value_bytes < 0 else encoded(output[value_at:headers_at]),
            "headers": list(_headers(output[headers_at:end])),
        }
        position = end + 1


def _headers(text: bytes) -> Iterator[list[str | None]]:
    for header in filter(None, text.split(b",")):
        name, _, value = header.partition(b"=")
        yield [name.decode(), None if value == b"NULL" else encoded(value)]


def _kcat(*arguments: str, given: bytes = b"", with_broker: bool = True) -> bytes:
    command = ["kcat", *(("-b", BOOTSTRAP) if with_broker else ()), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=WAIT_S)
    said = done.stderr.decode(errors="replace")
    for words, code in CODES.items():
        if words in said:
            raise RefusedError(code, said)
    assert done.returncode == 0, f"kcat ended with {done.returncode}: {said}"
    return done.stdout


STEPS = (hello, describe_topic, describe_cluster, list_offsets, produce, consume, read_in_group)
serve({step.__name__: step for step in STEPS}, lambda error: None)
