"""Replicas of one partition that lead and follow each other, on real logs: no committed record is ever lost.

The messages between them are calls here; what they say is what Fetch says. Faults between brokers are in tests/sim.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.handlers import list_offsets
from ottla.broker.partition import Partition
from ottla.config import LogConfig
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages import offsets
from ottla.protocol.messages.fetch import EpochEndOffset, PartitionData
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest
from ottla.records import batch
from ottla.replication.follower import Append, AskEpochEnd, Follower, Truncate, TruncateTo
from ottla.replication.leader import Leader
from ottla.storage.recovery import open_log
from ottla.testing.audit import batches_of
from ottla.testing.disk import SimulatedDisk

NAME = TopicPartition("t", 0)
NODES = (1, 2, 3)
LAG_MS = 100
FETCH_BYTES = 400  # a few batches


def partition_on(disk: SimulatedDisk) -> Partition:
    log = open_log(disk, "/data/t-0", NAME, LogConfig(segment_bytes=600), now_ms=0)
    return Partition(
        NAME,
        UUID(int=1),
        log,
        failures=DiskFailures(),
        truncate=lambda name, offset, now_ms: log.truncate_to(offset, now_ms=now_ms),
    )


@dataclass
class Replication:
    """Three replicas, a controller that writes what it is asked, and what was acknowledged."""

    rng: random.Random
    partitions: dict[int, Partition] = field(
        default_factory=lambda: {node: partition_on(SimulatedDisk()) for node in NODES}
    )
    epoch: int = 0
    version: int = 0
    leader_id: int = 1
    isr: tuple[int, ...] = NODES
    now_ms: int = 0
    sent: int = 0
    reports_divergence: bool = True  # in responses to Fetch; where it does not, followers ask first
    committed: dict[int, bytes] = field(default_factory=dict)  # by offset: a batch that was acknowledged to acks=all

    def __post_init__(self) -> None:
        self.partitions = {node: partition_on(SimulatedDisk()) for node in NODES}
        self.elect(1)

    @property
    def leader(self) -> Partition:
        return self.partitions[self.leader_id]

    def elect(self, node: int) -> None:
        """A new epoch: `node`, which is in sync, leads; the others follow."""
        assert node in self.isr
        self.epoch += 1
        self.version += 1
        self.leader_id = node
        for other, partition in self.partitions.items():
            if other == node:
                partition.lead(
                    Leader(
                        node,
                        self.epoch,
                        NODES,
                        self.isr,
                        end_offset=partition.log.end_offset,
                        high_watermark=partition.high_watermark,
                        version=self.version,
                        now_ms=self.now_ms,
                    )
                )
            else:
                partition.follow(node, self.epoch, partition.high_watermark)

    def append(self) -> None:
        self.sent += 1
        self.leader.append(batch.build(None, [f"record {self.sent}".encode()], self.now_ms), acks=1, now_ms=self.now_ms)

    def fetch(self, node: int) -> None:
        """One round: the follower asks, the leader answers, the follower does what it says."""
        partition, led = self.partitions[node], self.leader
        follower = partition.follower
        assert follower is not None
        while question := follower.before_fetch(partition.high_watermark, reports_divergence=self.reports_divergence):
            assert isinstance(question, AskEpochEnd)
            self.truncate(partition, follower, question)
        asked = follower.position
        last_epoch = asked.last_fetched_epoch if self.reports_divergence else -1
        answer = self.answer(led, node, asked.offset, last_epoch, asked.log_start_offset)
        match follower.handle_response(asked, answer):
            case Append(data):
                partition.append_fetched(follower, data, self.now_ms)
            case Truncate(epoch, end_offset):
                before = partition.log.end_offset, partition.log.epochs.latest
                partition.truncate_to_leader(follower, epoch, end_offset, self.now_ms)
                # An epoch in which nothing was written may be all that is too much.
                assert (partition.log.end_offset, partition.log.epochs.latest) < before
            case step:
                pytest.fail(f"{step}")

    def truncate(self, partition: Partition, follower: Follower, question: AskEpochEnd) -> None:
        led, log = self.leader.log, partition.log
        epoch, end_offset = led.epochs.end_of(question.epoch, led.end_offset)
        answer = offsets.EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_offset)
        own_end_of = lambda epoch: log.epochs.end_of(epoch, log.end_offset)  # noqa: E731
        step = follower.handle_epoch_end(answer, own_end_of, partition.high_watermark)
        assert isinstance(step, TruncateTo)
        partition.truncate_before_fetch(follower, step, self.now_ms)

    def answer(self, led: Partition, node: int, offset: int, last_epoch: int, log_start: int) -> PartitionData:
        log = led.log
        data = PartitionData(
            partition_index=0,
            high_watermark=led.leader.high_watermark,
            log_start_offset=log.log_start_offset,
            records=b"",
        )
        if last_epoch >= 0:
            epoch, end_offset = log.epochs.end_of(last_epoch, log.end_offset)
            if epoch < last_epoch or end_offset < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data
        led.record_fetch(node, offset, log_start, self.now_ms)
        data.high_watermark = led.leader.high_watermark
        found = led.read(offset, FETCH_BYTES, upper_offset=log.end_offset, at_least_one=True)
        if found is not None:
            data.records = found.records.read()
        self.note_committed(led)
        return data

    def note_committed(self, led: Partition) -> None:
        for header, data in batches_of(led.log):
            if header.end_offset <= led.leader.high_watermark:
                self.committed.setdefault(header.base_offset, data)

    def change_isr(self) -> None:
        leader = self.leader.leader
        node = self.rng.choice(NODES)
        if node in leader.isr:
            proposal = leader.propose_shrink(self.now_ms, LAG_MS)
        else:
            proposal = leader.propose_growth(node, NODES)
        if proposal is not None:
            self.version += 1
            self.isr = proposal.isr
            self.leader.isr_changed(leader, self.isr, self.version)
            self.note_committed(self.leader)

    def check(self) -> None:
        """Whoever leads has every committed batch, and so has everybody in sync as far as it knows them committed."""
        led = {header.base_offset: data for header, data in batches_of(self.leader.log)}
        for offset, data in self.committed.items():
            assert led[offset] == data, f"offset {offset} is lost in epoch {self.epoch}"
        for node in NODES:
            partition = self.partitions[node]
            for header, data in batches_of(partition.log):
                if header.end_offset <= partition.high_watermark:
                    assert led[header.base_offset] == data, f"replica {node} differs at {header.base_offset}"


@pytest.mark.parametrize("reports_divergence", [True, False], ids=["fetch-12", "fetch-11"])
@pytest.mark.parametrize("seed", range(12))
def test_no_committed_record_is_lost_and_committed_parts_are_equal(seed: int, reports_divergence: bool) -> None:
    rng = random.Random(seed)
    replication = Replication(rng, reports_divergence=reports_divergence)
    for _ in range(120):
        replication.now_ms += rng.randrange(40)
        followers = [node for node in NODES if node != replication.leader_id]
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                replication.append()
            case 4 | 5 | 6:
                replication.fetch(rng.choice(followers))
            case 7 | 8:
                replication.change_isr()
            case 9 if rng.random() < 0.5:
                replication.elect(rng.choice(replication.isr))
        replication.check()
    # Once everybody fetches, all logs are equal.
    for _ in range(100):
        for node in NODES:
            if node != replication.leader_id:
                replication.fetch(node)
    logs = [[data for _, data in batches_of(partition.log)] for partition in replication.partitions.values()]
    assert logs[0] == logs[1] == logs[2]
    assert all(p.high_watermark == replication.leader.log.end_offset for p in replication.partitions.values())


def test_a_follower_takes_producers_and_epochs_from_what_it_appends() -> None:
    replication = Replication(random.Random(1))
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = batch.build(None, [b"one", b"two"], 0, **options)  # type: ignore[arg-type]
    replication.leader.append(data, acks=1, now_ms=0)
    replication.fetch(2)
    theirs, ours = replication.leader.log, replication.partitions[2].log
    assert ours.producers.producers[7] == theirs.producers.producers[7]
    assert ours.epochs.entries[-1] == theirs.epochs.entries[-1]


def asked_by(replica_id: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=[])


def test_a_new_leader_does_not_tell_an_end_that_is_before_what_clients_heard() -> None:
    """It was told late what is committed; until its followers have all of it again, clients wait (KIP-207)."""
    replication = Replication(random.Random(0))
    for _ in range(3):
        replication.append()
    for _ in range(2):
        replication.fetch(2)
        replication.fetch(3)
    assert replication.leader.high_watermark == 3
    late = replication.partitions[2]
    late.follow(1, replication.epoch, 0)  # as after a restart that has lost the watermark
    replication.elect(2)
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    with pytest.raises(ApiError) as refused:
        list_offsets._find(late, latest, asked_by(-1), {})
    assert refused.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offsets._find(late, latest, asked_by(3), {}).offset == 3, "brokers are told the end of the log"
    replication.fetch(1)
    replication.fetch(3)
    assert list_offsets._find(late, latest, asked_by(-1), {}).offset == 3


def test_a_follower_that_could_take_only_a_part_asks_for_the_rest_and_not_for_what_it_has() -> None:
    """A segment cannot be begun between two batches of a response: the table of open files is full."""
    disks = {node: SimulatedDisk() for node in (1, 2)}
    led, following = (partition_on(disks[node]) for node in (1, 2))
    led.lead(Leader(1, 1, (1, 2), (1, 2), end_offset=0, high_watermark=0))
    follower = following.follow(1, 1, 0)
    for number in range(12):  # of 600 bytes each, so that segments roll
        led.append(batch.build(None, [b"record %d" % number], 0), acks=1, now_ms=0)

    def answer() -> PartitionData:
        found = led.read(follower.position.offset, 100_000, upper_offset=led.log.end_offset, at_least_one=True)
        assert found is not None
        records = b"".join(data for header, data in batches_of(led.log) if header.base_offset >= found.first_offset)
        return PartitionData(partition_index=0, high_watermark=0, log_start_offset=0, records=records)

    disks[2].run_out_of_descriptors(disks[2].descriptors_taken, 1)
    with pytest.raises(ApiError) as refusal:
        following.append_fetched(follower, answer(), 0)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert 0 < following.log.end_offset < led.log.end_offset
    assert follower.position.offset == following.log.end_offset
    following.append_fetched(follower, answer(), 0)
    assert list(batches_of(following.log)) == list(batches_of(led.log))


def test_a_replica_that_knows_of_no_high_watermark_knows_that_what_was_deleted_was_committed() -> None:
    """After a crash: the start of its log is on disk, and the high watermark is not."""
    disk = SimulatedDisk()
    log = partition_on(disk).log
    for number in range(10):
        log.append_as_follower(bytes(batch.build(None, [b"v"], 0, base_offset=number)), now_ms=0)
    log.advance_log_start(5)
    partition = Partition(NAME, UUID(int=1), log, DiskFailures(), truncate=lambda name, offset, now_ms: None)
    assert partition.watermarks[::2] == (5, 5)
    partition.follow(1, 1, 0)
    assert partition.watermarks[::2] == (5, 5)
