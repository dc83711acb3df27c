"""A leader that answers a follower in strange ways: once it has come to its senses, the follower has its log.

It has no session, fails as a whole, for a partition, or with an error of a later version; records are cut, damaged, of
an old format, earlier ones or missing; watermarks make no sense; a partition is left out or comes twice; and the
connection is closed, or garbled. `OTTLA_STRANGE_LEADERS=n` plays more histories.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.fetchers import Fetchers, FetcherSettings
from ottla.broker.partition import Partition
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.config import LogConfig
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.net.client import Address, BrokerConnection
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import frame_length
from ottla.protocol.headers import decode_request_header, encode_response_header
from ottla.protocol.messages import fetch, offsets
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import ZERO_UUID
from ottla.records import batch, control
from ottla.storage.log import Log
from ottla.storage.recovery import open_log
from ottla.testing import loop
from ottla.testing.audit import audit, batches_of
from ottla.testing.disk import SimulatedDisk

HISTORIES = int(os.environ.get("OTTLA_STRANGE_LEADERS", "12"))
NODE, LEADER = 2, 1
ADDRESS = Address("leader", 9092)
TOPIC = UUID(int=7)
NOW = 1_700_000_000_000
PRODUCER = 9
FETCH, LIST_OFFSETS, API_VERSIONS, EPOCHS = 1, 2, 18, 23
VERSIONS = (4, 6, 8, 11, 12, 13, 15, 17, 18)  # of Fetch, the latest that it knows
LATER_CODE = 9999
PARTITION_ERRORS = (3, 5, 6, 9, 56, 75, 76, 100, 103, -1, LATER_CODE)
SESSION_ERRORS = (70, 71, 106, -1, 2, 29, LATER_CODE)


class Clock:
    """The loop's."""

    def now_ms(self) -> int:
        return NOW + self.steady_ms()

    def steady_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class StrangeLeader:
    """Some logs that grow, and how they are told of."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.rng = rng
        self.version = rng.choice(VERSIONS)
        config = LogConfig(segment_bytes=rng.choice([1000, 100_000]))
        self.logs = [
            open_log(SimulatedDisk(), "/data/t", TopicPartition("t", number), config, now_ms=NOW)
            for number in range(count)
        ]
        self.epoch = 0
        self.is_strange = True
        self.done: Counter[str] = Counter()
        self.asked = 0
        self.sessions: dict[int, tuple[dict[int, FetchPartition], dict[int, tuple[int, int]]]] = {}

    def grow(self) -> None:
        for log in self.logs:
            for _ in range(self.rng.choice([0, 0, 1, 3, 10])):
                known, options = log.producers.producers.get(PRODUCER), {}
                if log.producers.is_in_transaction(PRODUCER) and self.rng.random() < 0.3:
                    marker = control.EndTransactionMarker(self.rng.random() < 0.5, 0)
                    log.append_marker(PRODUCER, 0, marker, leader_epoch=self.epoch, now_ms=NOW)
                    continue
                if self.rng.random() < 0.3:
                    sequence = 0 if known is None else known.last_sequence + 1
                    options = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}
                    options["is_transactional"] = True
                values = [self.rng.randbytes(self.rng.choice([1, 20, 200]))] * self.rng.choice([1, 2])
                log.append(batch.build(None, values, NOW, **options), leader_epoch=self.epoch, now_ms=NOW)  # type: ignore[arg-type]
            if self.rng.random() < 0.05:
                log.advance_log_start(self.rng.randint(log.log_start_offset, log.end_offset))

    def begin_epoch(self) -> None:
        """Another one, perhaps of a leader that lacks the last records: an unclean election."""
        self.epoch += 1
        self.sessions.clear()
        for log in self.logs:
            if self.rng.random() < 0.3:
                log.truncate_to(max(log.log_start_offset, log.end_offset - self.rng.randrange(4)), now_ms=NOW)
            log.assign_epoch(self.epoch)

    def is_it(self, what: str, chance: float) -> bool:
        """Whether it does this strange thing now."""
        if not self.is_strange or self.rng.random() >= chance:
            return False
        self.done[what] += 1
        return True

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer(self, frame: memoryview) -> tuple[bytes | None, float]:
        """The frame of an answer, and after how long it comes; None: the connection is closed."""
        self.asked += 1
        header, at = decode_request_header(frame)
        key, version, delay_s = header.request_api_key, header.request_api_version, 0.001
        response: Any
        if key == API_VERSIONS:
            response = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(
                        api_key=one,
                        min_version=API_TABLE[one].versions.first,
                        max_version=self.version if one == FETCH else API_TABLE[one].versions.last,
                    )
                    for one in (FETCH, LIST_OFFSETS, API_VERSIONS, EPOCHS)
                ]
            )
        elif key == LIST_OFFSETS:
            response = self._offset(decode(offsets.ListOffsetsRequest, frame, version, at))
        elif key == EPOCHS:
            response = self._epoch_ends(decode(offsets.OffsetForLeaderEpochRequest, frame, version, at))
        else:
            if self.is_it("closed", 0.02):
                return None, 0.0
            request = decode(FetchRequest, frame, version, at)
            response = self._fetched(request, version)
            if not any(one.records or one.error_code for topic in response.responses for one in topic.partitions):
                delay_s = request.max_wait_ms / 1000
        data = bytearray(encode_response_header(header.correlation_id, key, version) + encode(response, version))
        if key == FETCH and self.is_it("garbled", 0.02):
            data[self.rng.randrange(min(len(data), 22))] = self.rng.randrange(256)
            del data[self.rng.choice([len(data), len(data) // 2]) :]
        return frame_length(len(data)) + data, delay_s

    def _offset(self, request: offsets.ListOffsetsRequest) -> offsets.ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        log = self.logs[asked.partition_index]
        answer = offsets.ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=LATER_CODE if self.is_it("no offset", 0.2) else ErrorCode.NONE,
            offset=log.end_offset if asked.timestamp == -1 else log.log_start_offset,
        )
        return offsets.ListOffsetsResponse(topics=[offsets.ListOffsetsTopicResponse(name="t", partitions=[answer])])

    def _epoch_ends(self, request: offsets.OffsetForLeaderEpochRequest) -> offsets.OffsetForLeaderEpochResponse:
        answers = []
        for asked in request.topics[0].partitions:
            log = self.logs[asked.partition]
            epoch, end_offset = log.epochs.end_of(asked.leader_epoch, log.end_offset)
            answers.append(offsets.EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset))
        return offsets.OffsetForLeaderEpochResponse(
            topics=[offsets.OffsetForLeaderTopicResult(topic="t", partitions=answers)]
        )

    def _fetched(self, request: FetchRequest, version: int) -> FetchResponse:
        if self.is_it("fails as a whole", 0.03):
            return FetchResponse(error_code=self.rng.choice(SESSION_ERRORS), session_id=0, responses=[])
        asked = {one.partition: one for topic in request.topics for one in topic.partitions}
        session_id = 0
        reported: dict[int, tuple[int, int]] = {}
        if request.session_epoch == 0 and not self.is_it("no session", 0.1):
            session_id = self.rng.randrange(1, 2**31)
            self.sessions[session_id] = asked, reported
        elif request.session_epoch < 0:
            self.sessions.pop(request.session_id, None)
        elif request.session_epoch > 0:
            session_id = request.session_id
            if session_id not in self.sessions:
                code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                return FetchResponse(error_code=code, session_id=0, responses=[])
            known, reported = self.sessions[session_id]
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    known.pop(number, None)
            known.update(asked)
            asked = known
        answers = []
        for number, one in asked.items():
            data = self._partition(number, one, version)
            watermarks = data.high_watermark, data.log_start_offset
            is_news = (
                bool(data.records or data.error_code or data.diverging_epoch) or reported.get(number) != watermarks
            )
            if (session_id and not is_news and not self.is_it("says again", 0.2)) or self.is_it("left out", 0.03):
                continue
            reported[number] = watermarks
            answers += [data] * (2 if self.is_it("twice", 0.03) else 1)
        if self.is_it("nobody asked for it", 0.02):
            answers.append(PartitionData(partition_index=99, high_watermark=0, records=b""))
        if self.is_strange:
            self.rng.shuffle(answers)
        name = {"topic": "t", "topic_id": ZERO_UUID} if version < 13 else {"topic_id": TOPIC}
        topics = [FetchableTopicResponse(**name, partitions=answers)] if answers else []  # type: ignore[arg-type]
        throttle_ms = 500 if self.is_it("throttle", 0.05) else 0
        return FetchResponse(session_id=session_id, responses=topics, throttle_time_ms=throttle_ms)

    def _partition(self, number: int, asked: FetchPartition, version: int) -> PartitionData:
        rng, log = self.rng, self.logs[number]
        start, end = log.log_start_offset, log.end_offset
        data = PartitionData(partition_index=number, high_watermark=end, log_start_offset=start, records=b"")
        if not start <= asked.fetch_offset <= end or self.is_it("error", 0.05):
            is_outside = not start <= asked.fetch_offset <= end
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE if is_outside else rng.choice(PARTITION_ERRORS)
            data.high_watermark = data.log_start_offset = -1
            return data
        if version >= 12 and asked.last_fetched_epoch >= 0:
            epoch, epoch_end = log.epochs.end_of(asked.last_fetched_epoch, end)
            if epoch < asked.last_fetched_epoch or epoch_end < asked.fetch_offset:
                data.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=epoch_end)
                return data
        bytes_max = rng.choice([0, 50, 200, 1000, 100_000])
        data.records = self._records(log, asked.fetch_offset, bytes_max)
        if self.is_it("watermark", 0.1):
            data.high_watermark = rng.choice([-1, 0, end + 100, 2**63 - 1, asked.fetch_offset - 1])
        if self.is_it("no log start", 0.03):
            data.log_start_offset = -1
        if version >= 11 and self.is_it("another replica", 0.03):
            data.preferred_read_replica = 5
        if version >= 12 and self.is_it("another leader", 0.02):
            data.current_leader = fetch.LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
        if self.is_it("aborted", 0.05):
            data.aborted_transactions = [fetch.AbortedTransaction(producer_id=PRODUCER, first_offset=0)]
        return data

    def _records(self, log: Log, offset: int, bytes_max: int) -> bytes | None:
        if self.is_it("no records", 0.03):
            return None
        if self.is_it("earlier records", 0.03):
            offset = max(log.log_start_offset, offset - self.rng.choice([1, 1, 5]))
        found = log.read(offset, bytes_max)
        records = bytearray(b"" if found is None else found.records.read())
        if records and self.is_it("cut", 0.1):
            del records[self.rng.randrange(len(records)) :]
        if len(records) > batch.HEADER_BYTES:
            # What stands in front of these has no checksum: nobody could tell.
            if self.is_it("damaged", 0.05):
                records[self.rng.randrange(16, batch.HEADER_BYTES)] ^= 1 << self.rng.randrange(8)
            if self.is_it("old format", 0.02):
                records[16] = self.rng.randrange(2)
        return bytes(records)


class Transport:
    """A connection to it, whose answers come in pieces."""

    def __init__(self, leader: StrangeLeader, connection: asyncio.BufferedProtocol) -> None:
        assert isinstance(connection, BrokerConnection)
        self._leader, self._connection = leader, connection
        self._sent = bytearray()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes | memoryview) -> None:
        self._sent += data
        while len(self._sent) >= 4 and len(self._sent) >= (end := 4 + int.from_bytes(self._sent[:4], "big")):
            frame, self._sent = bytes(self._sent[4:end]), self._sent[end:]
            self._loop.call_soon(self._asked, frame)

    def _asked(self, frame: bytes) -> None:
        answer, delay_s = self._leader.answer(memoryview(frame))
        if answer is None:
            self.close()
        else:
            self._loop.call_later(delay_s, self._answered, answer)

    def _answered(self, answer: bytes) -> None:
        piece_bytes = self._leader.rng.choice([7, 1000, 100_000]) if len(answer) < 3000 else 100_000
        while answer and not self._is_closed:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(answer), piece_bytes)
            room[:count] = answer[:count]
            del room
            answer = answer[count:]
            self._connection.buffer_updated(count)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._connection.connection_lost, None)

    abort = close


def followed(number: int, config: LogConfig) -> Partition:
    name = TopicPartition("t", number)
    log = open_log(SimulatedDisk(), "/data/t", name, config, now_ms=NOW)

    def truncate(name: TopicPartition, offset: int, now_ms: int) -> None:
        log.truncate_to(offset, now_ms=now_ms)

    return Partition(name, TOPIC, log, DiskFailures(), truncate)


async def play(seed: int) -> None:
    rng = random.Random(seed)
    leader = StrangeLeader(rng, rng.choice([1, 2, 6]))
    settings = FetcherSettings(rng.choice([100, 1000, 1_000_000]), 10_000_000, 1, 500, 1000, 30.0)
    quota = ReplicationQuota(NODE, lambda: 1, lambda config: (), lambda: 0.0)

    async def connect(make_protocol: Callable[[], asyncio.BufferedProtocol], address: Address) -> Transport:
        return Transport(leader, make_protocol())

    fetchers = Fetchers(NODE, lambda: settings, lambda: 1, lambda: 1, quota, Clock(), connect)
    config = LogConfig(segment_bytes=rng.choice([300, 100_000]))
    partitions = [followed(number, config) for number in range(len(leader.logs))]

    def follow() -> None:
        for partition in partitions:
            partition.follow(LEADER, leader.epoch, partition.high_watermark)
            fetchers.follow(partition, LEADER, ADDRESS)

    follow()
    for _ in range(30):
        leader.grow()
        await asyncio.sleep(rng.choice([0, 0.01, 0.1, 0.5]))
        if rng.random() < 0.05:
            leader.begin_epoch()
            follow()
    leader.is_strange = False
    await asyncio.sleep(5)
    asked = leader.asked
    await asyncio.sleep(5)
    assert leader.asked - asked <= 15, "a follower that has everything waits for more"
    for partition, log in zip(partitions, leader.logs, strict=True):
        assert partition.log.end_offset == partition.high_watermark == log.end_offset
        audit(partition.log, may_have_gaps=True)
        if leader.version >= 5:  # before it, nobody says where a log starts
            assert partition.log.log_start_offset == log.log_start_offset
        start = partition.log.segments[0].base_offset
        common = max(start, log.segments[0].base_offset, log.log_start_offset)
        assert [data for _, data in batches_of(partition.log, common)] == [data for _, data in batches_of(log, common)]
    sessions = len(leader.sessions)
    for partition in partitions:
        fetchers.leave(partition.name)
    await asyncio.sleep(1)
    assert len(leader.sessions) == (sessions - 1 if leader.version >= 7 else 0), "the last one was ended"
    fetchers.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_follower_has_the_log_of_a_leader_that_was_strange_for_a_while(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    loop.run(play(seed))
    unexpected = [record.getMessage() for record in caplog.records if record.exc_info]
    assert unexpected == [], "nothing that it may say is a surprise"
