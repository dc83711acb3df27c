"""The storage engine: append, the way of a Produce request, start, recovery and compaction.

CPU time of this process, smallest of several rounds; the machine may be busy, the smallest round tells what the code
costs. Files go to a temporary directory that is removed afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import floor
from ottla.broker.broker import Broker
from ottla.broker.metadata_changes import RequestedTopic
from ottla.config import LogConfig
from ottla.disk import RealDisk, RealFile
from ottla.ids import TopicPartition
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import decode_request_header, encode_request_header, encode_response_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records import batch, codec
from ottla.storage import cleaner
from ottla.storage.log import Log
from ottla.storage.recovery import RecoveryReport, open_log
from turns import Plan, Work, take_turns

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("bench", 0)
PRODUCE_VERSION = 9
# An append stamps its bytes: what is appended again gets the base offset of a producer's batch back each time.
BASE_OFFSET_AS_SENT = bytes(8)


class SilentFile(RealFile):
    """Takes writes without a system call, to see what our own code costs."""

    def write(self, position: int, data: Any) -> None:
        return


class SilentDisk(RealDisk):
    def open(self, path: str, *, create: bool = False, writable: bool = False) -> RealFile:
        if path.endswith(".log") and writable:
            flags = os.O_RDWR | (os.O_CREAT if create else 0)
            return SilentFile(path, os.open(path, flags, 0o644))
        return super().open(path, create=create, writable=writable)


def smallest(rounds: int, work: Callable[[], float]) -> float:
    return min(work() for _ in range(rounds))


def cpu_of(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def one_batch(value_bytes: int, batch_bytes: int) -> bytearray:
    count = max(1, batch_bytes // (value_bytes + 10))
    return batch.build(None, [os.urandom(value_bytes)] * count, NOW_MS)


def append_cost(directory: str, batch_bytes: int, total_bytes: int) -> dict[str, Any]:
    """CPU seconds per GB, in turns with the floor: checksum and write."""
    template = one_batch(100, batch_bytes)
    count = total_bytes // len(template)

    def round_of_appends() -> dict[str, float]:
        path = tempfile.mkdtemp(dir=directory)
        log = open_log(RealDisk(), path, PARTITION, LogConfig(), now_ms=NOW_MS)

        def work() -> None:
            for _ in range(count):
                template[:8] = BASE_OFFSET_AS_SENT
                log.append(template, leader_epoch=0, now_ms=NOW_MS)

        cost = cpu_of(work)
        log.abandon()
        shutil.rmtree(path)
        return {"cpu_s_per_gb": cost / (count * len(template)) * 1e9}

    works: dict[str, Work] = {"ottla": round_of_appends}
    if floor.missing() is None:
        program = floor.build(tempfile.mkdtemp(dir=directory))

        def on_the_floor() -> dict[str, float]:
            cost = floor.append_cpu_s(program, program.with_name("log"), len(template), count)
            return {"cpu_s_per_gb": cost / (count * len(template)) * 1e9}

        works["floor"] = on_the_floor
    return take_turns(works, Plan(warm_up_s=5.0))


def produce_frame(records: bytes) -> bytes:
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="bench", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    header = RequestHeader(request_api_key=0, request_api_version=PRODUCE_VERSION, correlation_id=7, client_id="bench")
    return encode_request_header(header) + encode(request, PRODUCE_VERSION)


def base_offset_in(frame: bytearray | memoryview, records: bytes) -> slice:
    """Where the base offset of the batch stands in its request."""
    start = bytes(frame).index(records)
    return slice(start, start + len(BASE_OFFSET_AS_SENT))


def produce_once(frame: bytearray, log: Log) -> bytes:
    """From the bytes of a request to the bytes of its answer, as a broker does it, without the sockets."""
    view = memoryview(frame)
    header, position = decode_request_header(view)
    request = decode(ProduceRequest, view, header.request_api_version, position)
    responses = []
    for topic in request.topic_data:
        partitions = []
        for partition in topic.partition_data:
            assert partition.records is not None
            appended = log.append(partition.records, leader_epoch=0, now_ms=NOW_MS)
            partitions.append(
                PartitionProduceResponse(
                    index=partition.index,
                    base_offset=appended.first_offset,
                    log_append_time_ms=appended.append_time_ms,
                    log_start_offset=log.log_start_offset,
                )
            )
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=partitions))
    return encode_response_header(header.correlation_id, 0, header.request_api_version) + encode(
        ProduceResponse(responses=responses), header.request_api_version
    )


def produce_cost(directory: str, disk: RealDisk, count: int = 20_000) -> float:
    """CPU µs per request of one batch of one 100-byte record."""
    records = bytes(batch.build(None, [bytes(100)], NOW_MS))
    frame = bytearray(produce_frame(records))
    base_offset = base_offset_in(frame, records)

    def round_of_requests() -> float:
        path = tempfile.mkdtemp(dir=directory)
        log = open_log(disk, path, PARTITION, LogConfig(), now_ms=NOW_MS)

        def work() -> None:
            for _ in range(count):
                frame[base_offset] = BASE_OFFSET_AS_SENT
                produce_once(frame, log)

        cost = cpu_of(work)
        log.abandon()
        shutil.rmtree(path)
        return cost / count * 1e6

    return smallest(5, round_of_requests)


def dispatch_cost(directory: str, count: int = 20_000) -> dict[str, float]:
    """The same request through the broker's dispatcher, system call of the append included: at first, and repeated."""

    async def measure() -> dict[str, float]:
        broker = Broker({"log.dirs": os.path.join(directory, "broker"), "listeners": "PLAINTEXT://127.0.0.1:0"})
        await broker.start()
        await broker.controller.create_topics([RequestedTopic("bench", 1, 1)])
        records = bytes(batch.build(None, [bytes(100)], broker.clock.now_ms()))
        frame = memoryview(bytearray(produce_frame(records)))
        base_offset = base_offset_in(frame, records)
        peer: Any = SimpleNamespace(session=broker.sessions.open("PLAINTEXT", "127.0.0.1"))

        def first() -> None:
            for _ in range(count // 4):
                peer.session = broker.sessions.open("PLAINTEXT", "127.0.0.1")
                frame[base_offset] = BASE_OFFSET_AS_SENT
                broker.dispatcher(peer, frame)

        def repeated() -> None:
            for _ in range(count):
                frame[base_offset] = BASE_OFFSET_AS_SENT
                broker.dispatcher(peer, frame)

        costs = {
            "first_us": smallest(5, lambda: cpu_of(first)) / (count // 4) * 1e6,
            "repeated_us": smallest(5, lambda: cpu_of(repeated)) / count * 1e6,
        }
        appended = broker.replicas.find("bench", 0).log.end_offset
        assert appended == 5 * (count // 4 + count), "what was measured are appends and not refusals"
        await broker.stop()
        return costs

    return asyncio.run(measure())


def unpack_ns() -> float:
    """A yardstick for the machine of this moment: one `Struct.unpack_from`; 63 ns where prototypes were measured."""
    unpack, data = struct.Struct(">qiib").unpack_from, bytes(64)

    def work() -> None:
        for _ in range(200_000):
            unpack(data, 8)

    return smallest(5, lambda: cpu_of(work)) / 200_000 * 1e9


def fill(path: str, total_bytes: int, config: LogConfig, batch_bytes: int = 16 * 1024) -> Log:
    log = open_log(RealDisk(), path, PARTITION, config, now_ms=NOW_MS)
    template = one_batch(100, batch_bytes)
    for _ in range(total_bytes // len(template)):
        template[:8] = BASE_OFFSET_AS_SENT
        log.append(template, leader_epoch=0, now_ms=NOW_MS)
    return log


def clean_start(directory: str, segments: int = 100) -> float:
    path = os.path.join(directory, "start")
    config = LogConfig(segment_bytes=1024 * 1024)
    log = fill(path, segments * 1024 * 1024, config)
    log.close()
    assert len(log.segments) >= segments

    def start() -> float:
        started = time.perf_counter()
        log = open_log(RealDisk(), path, PARTITION, config, now_ms=NOW_MS, is_clean=True, recovery_point=log_end)
        seconds = time.perf_counter() - started
        log.close()
        return seconds

    log_end = log.end_offset
    seconds = smallest(3, start)
    shutil.rmtree(path)
    return seconds


def recovery(directory: str, total_bytes: int) -> dict[str, float]:
    """An unclean segment, recovered from the page cache: the cost of our code, and how fast the same file reads."""
    path = os.path.join(directory, "recovery")
    fill(path, total_bytes, LogConfig()).abandon()

    def recover() -> float:
        report = RecoveryReport()
        started = time.perf_counter()
        log = open_log(RealDisk(), path, PARTITION, LogConfig(), now_ms=NOW_MS, report=report)
        seconds = time.perf_counter() - started
        assert report.recovered_bytes == log.size_bytes
        assert not report.problems
        log.abandon()
        return seconds

    def read() -> float:
        started = time.perf_counter()
        with open(os.path.join(path, "00000000000000000000.log"), "rb", buffering=0) as file:
            while file.read(4 * 1024 * 1024):
                pass
        return time.perf_counter() - started

    size = os.path.getsize(os.path.join(path, "00000000000000000000.log"))
    seconds, reading = smallest(3, recover), smallest(3, read)
    shutil.rmtree(path)
    return {"recover_mb_per_s": size / seconds / 1e6, "page_cache_read_mb_per_s": size / reading / 1e6}


def compaction(directory: str, total_bytes: int, distinct_keys: int) -> dict[str, float]:
    """A log of keyed 100-byte records, compacted in a process of its own."""
    path = os.path.join(directory, "compaction")
    config = LogConfig(segment_bytes=64 * 1024 * 1024, cleanup_policy=("compact",))
    log = open_log(RealDisk(), path, PARTITION, config, now_ms=NOW_MS)
    number = 0
    while log.size_bytes < total_bytes:
        keys = [b"key-%010d" % ((number + i) * 7919 % distinct_keys) for i in range(140)]
        log.append(batch.build(keys, [bytes(100)] * 140, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
        number += 140
    log.roll(NOW_MS)
    log.flush()
    job = cleaner.plan(log, 0, high_watermark=log.end_offset, now_ms=NOW_MS)
    assert job is not None
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(int).result()  # the process is up
        started = time.perf_counter()
        result = pool.submit(cleaner.run_job, job).result()
        seconds = time.perf_counter() - started
    cleaner.commit(log, result, NOW_MS)
    log.abandon()
    shutil.rmtree(path)
    return {
        "mb_per_s": result.bytes_read / seconds / 1e6,
        "records_read": result.records_read,
        "records_kept": result.records_kept,
    }


def run() -> dict[str, Any]:
    directory = tempfile.mkdtemp(prefix="ottla-bench-")
    try:
        results: dict[str, Any] = {
            "native": codec.NATIVE,
            "struct_unpack_ns": unpack_ns(),
            "append_16k": append_cost(directory, 16 * 1024, 200_000_000),
            "append_1m": append_cost(directory, 1_000_000, 400_000_000),
            "produce_request_us": produce_cost(directory, RealDisk()),
            "produce_request_without_system_calls_us": produce_cost(directory, SilentDisk()),
            "produce_request_by_dispatcher": dispatch_cost(directory),
            "clean_start_100_segments_s": clean_start(directory),
            "recovery_1_gib": recovery(directory, 1024**3 - 10_000_000),
            "compaction_few_keys": compaction(directory, 300_000_000, 10_000),
            "compaction_many_keys": compaction(directory, 300_000_000, 1_000_000),
        }
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    results = run()
    print(json.dumps(results, indent=2))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
