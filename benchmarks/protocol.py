"""CPU time per message of the wire protocol, beside kafka-python's codec.

    python benchmarks/protocol.py [--json FILE]

Smallest of several rounds of CPU time of this process, so that a busy machine shows as little as possible.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.protocol.codec import decode, encode, encode_parts
from ottla.protocol.headers import decode_request_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ROUNDS = 7
ROUND_SECONDS = 0.05
TOPIC_ID = UUID("b8f5c3d2-1a2b-4c3d-8e4f-5a6b7c8d9e0f")


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Stands for records that stay in their file."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    ours: Callable[[], object]
    kafka_python: Callable[[], object] | None = None


def produce_request() -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=bytes(170))
    topic = TopicProduceData(name="events", partition_data=[partition])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch_request(version: int) -> FetchRequest:
    partitions = [FetchPartition(partition=p, fetch_offset=1000, partition_max_bytes=1 << 20) for p in range(6)]
    by_id = version >= 13
    topic = FetchTopic(partitions=partitions, topic="" if by_id else "events")
    if by_id:
        topic.topic_id = TOPIC_ID
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=1, topics=[topic])


def metadata_response() -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=n, host=f"broker-{n}.example", port=9092) for n in range(3)]
    partitions = [
        MetadataResponsePartition(
            partition_index=p, leader_id=p % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for p in range(6)
    ]
    topics = [MetadataResponseTopic(name=f"topic-{t}", topic_id=TOPIC_ID, partitions=partitions) for t in range(10)]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=0, topics=topics)


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, base_offset=4711)
    return ProduceResponse(responses=[TopicProduceResponse(name="events", partition_responses=[partition])])


def fetch_response(records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=p, high_watermark=5000, records=records) for p in range(6)]
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def decode_case(name: str, message: Any, version: int) -> Case:
    encoded = encode(message, version)
    cls, theirs = type(message), kafka_python_class(type(message).__name__)
    return Case(
        f"decode {name}",
        lambda: decode(cls, encoded, version),
        lambda: theirs.decode(encoded, version=version),
    )


def encode_case(name: str, message: Any, version: int) -> Case:
    # Their message is what they read from our bytes; both then write it.
    theirs = kafka_python_class(type(message).__name__).decode(encode(message, version), version=version)
    return Case(f"encode {name}", lambda: encode(message, version), theirs.encode)


def request_case(name: str, message: Any, api_key: int, version: int) -> Case:
    """Header and body, from a view of the receive buffer."""
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=1, client_id="client-1")
    request = memoryview(encode_request_header(header) + encode(message, version))
    cls = type(message)

    def read() -> object:
        _, position = decode_request_header(request)
        return decode(cls, request, version, position)

    return Case(f"decode header and {name} (view)", read)


def cases() -> list[Case]:
    in_files = fetch_response(FileSlice(1 << 20))
    return [
        decode_case(
            "ApiVersions 3", ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2.6.1"), 3
        ),
        decode_case("Produce 9, one batch", produce_request(), 9),
        decode_case("Produce 7, one batch", produce_request(), 7),
        request_case("Produce 9, one batch", produce_request(), 0, 9),
        decode_case("Fetch 12, 6 partitions", fetch_request(12), 12),
        decode_case("Fetch 17, 6 partitions", fetch_request(17), 17),
        encode_case("Produce 9 response", produce_response(), 9),
        encode_case("Fetch 17 response, 6 × 170 B", fetch_response(bytes(170)), 17),
        Case("encode Fetch 17 response, 6 file slices", lambda: encode_parts(in_files, 17)),
        encode_case("Metadata 12 response, 60 partitions", metadata_response(), 12),
    ]


def kafka_python_class(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module in ("consumer", "metadata", "producer"):
            found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
            if found is not None:
                return found
    raise LookupError(name)


def cpu_microseconds(call: Callable[[], object]) -> float:
    """CPU time of one call: the smallest mean of several rounds."""
    call()
    repeat = 1
    while _seconds(call, repeat) < ROUND_SECONDS:
        repeat *= 2
    return min(_seconds(call, repeat) for _ in range(ROUNDS)) / repeat * 1e6


def _seconds(call: Callable[[], object], repeat: int) -> float:
    start = time.process_time()
    for _ in range(repeat):
        call()
    return time.process_time() - start


def run() -> dict[str, Any]:
    """The figures, in µs of CPU per message."""
    results = {}
    for case in cases():
        figures: dict[str, float | None] = {"ottla_us": round(cpu_microseconds(case.ours), 2)}
        figures["kafka_python_us"] = round(cpu_microseconds(case.kafka_python), 2) if case.kafka_python else None
        results[case.name] = figures
    return results


def render(results: dict[str, Any]) -> str:
    lines = [f"{'µs of CPU per message':<46} {'ottla':>8} {'kafka-python':>13}"]
    for name, figures in results.items():
        theirs = figures["kafka_python_us"]
        lines.append(f"{name:<46} {figures['ottla_us']:>8.2f} {'' if theirs is None else f'{theirs:.2f}':>13}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file as well")
    arguments = parser.parse_args()
    results = run()
    print(render(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
