"""Transactions request by request: what readers see, what survives a restart in each state, what time ends."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeProducersRequestTopicRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.records import batch
from ottla.replication.leader import Leader
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import (
    RawProducer,
    begin_briefly,
    end_request,
    find_coordinator,
    list_request,
    marker_request,
)
from ottla.testing.waiting import WAIT_S, wait_until

NewTopic = Callable[..., tuple[str, UUID]]
READ_COMMITTED = 1
_names = (f"tx-{number}" for number in itertools.count())

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def producer(client: RawClient) -> RawProducer:
    found = RawProducer(client, next(_names))
    found.init()
    return found


def committed_values(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """What a reader at read_committed hands out: up to the last stable offset, without what was aborted."""
    values: list[bytes] = []
    skipped: set[int] = set()
    offset = 0
    while True:
        request = fetch(topic, offset, partitions=[partition], isolation_level=READ_COMMITTED)
        answer = client.ask(request, 11).responses[0].partitions[0]
        assert not answer.error_code, ErrorCode(answer.error_code).name
        data = bytes(answer.records or b"")
        if not data:
            return values
        aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
        scanned = batch.scan(data)
        for position, header in zip(scanned.positions, scanned.headers, strict=True):
            while aborted and aborted[0][0] <= header.base_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif header.producer_id not in skipped or not header.is_transactional:
                values += [value or b"" for value in batch.decode(data, position).values]
        offset = scanned.headers[-1].end_offset


def stable_offset(client: RawClient, topic: str) -> int:
    return int(
        client.ask(fetch(topic, isolation_level=READ_COMMITTED), 11).responses[0].partitions[0].last_stable_offset
    )


def committed_offset(client: RawClient, group: str, topic: str) -> tuple[int, ErrorCode]:
    entry = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = client.ask(OffsetFetchRequest(groups=[entry], require_stable=True), 8).groups[0]
    found = answer.topics[0].partitions[0]
    return found.committed_offset, ErrorCode(found.error_code)


def made(client: RawClient, topic: str) -> str:
    assert not client.ask(create_topic(topic), 7).topics[0].error_code
    return topic


# -- what readers see --------------------------------------------------------------------------------------------------


@both_versions
def test_a_reader_of_committed_data_sees_nothing_until_the_end_and_nothing_of_what_was_aborted(
    client: RawClient, new_topic: NewTopic, version: int
) -> None:
    topic, _ = new_topic()
    producer = RawProducer(client, next(_names), version=version)
    producer.init()
    producer.send(topic, b"a1", b"a2")
    assert committed_values(client, topic) == []
    assert stable_offset(client, topic) == 0
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed_values(client, topic) == [b"a1", b"a2"]
    producer.send(topic, b"b")
    assert producer.end(commit=False) == ErrorCode.NONE
    assert client.ask(produce(topic, one_batch(b"plain")), 9)
    producer.send(topic, b"c")
    assert committed_values(client, topic) == [b"a1", b"a2", b"plain"]
    producer.end(commit=True)
    assert committed_values(client, topic) == [b"a1", b"a2", b"plain", b"c"]


@both_versions
def test_offsets_count_with_the_transaction_that_commits_them(
    client: RawClient, new_topic: NewTopic, version: int
) -> None:
    topic, _ = new_topic()
    group = next(_names)
    producer = RawProducer(client, next(_names), version=version)
    producer.init()
    assert producer.commit_offset(group, topic, 5) == ErrorCode.NONE
    assert committed_offset(client, group, topic) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    producer.end(commit=True)
    assert committed_offset(client, group, topic) == (5, ErrorCode.NONE)
    producer.commit_offset(group, topic, 9)
    producer.end(commit=False)
    assert committed_offset(client, group, topic) == (5, ErrorCode.NONE)


def test_the_end_reaches_hundreds_of_partitions(client: RawClient, new_topic: NewTopic, producer: RawProducer) -> None:
    topic, _ = new_topic(200)
    for partition in range(200):
        assert not producer.send(topic, b"v", partition=partition).error_code
    assert producer.end(commit=True) == ErrorCode.NONE
    producer.wait_for_state("CompleteCommit")
    assert all(committed_values(client, topic, partition) == [b"v"] for partition in range(200))


def test_a_deleted_topic_does_not_keep_a_transaction_from_its_end(
    client: RawClient, new_topic: NewTopic, producer: RawProducer
) -> None:
    gone, _ = new_topic()
    stays, _ = new_topic()
    producer.send(gone, b"v")
    producer.send(stays, b"v")
    client.ask(DeleteTopicsRequest(topic_names=[gone], timeout_ms=1000), 5)
    assert producer.end(commit=True) == ErrorCode.NONE
    producer.wait_for_state("CompleteCommit")
    assert committed_values(client, stays) == [b"v"]


# -- who may -----------------------------------------------------------------------------------------------------------


def test_a_second_producer_fences_the_first(client: RawClient, new_topic: NewTopic, producer: RawProducer) -> None:
    topic, _ = new_topic()
    producer.send(topic, b"lost")
    second = RawProducer(client, producer.transactional_id)
    second.init()
    assert producer.send(topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=True) == ErrorCode.PRODUCER_FENCED
    second.send(topic, b"kept")
    second.end(commit=True)
    assert committed_values(client, topic) == [b"kept"]


def test_a_version_1_batch_that_no_coordinator_knows_of_is_refused(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    producer = RawProducer(client, next(_names), version=1)
    producer.init()
    records = one_batch(
        b"v", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    request = produce(topic, records, transactional_id=producer.transactional_id)
    codes = [client.ask(request, version).responses[0].partition_responses[0].error_code for version in (10, 11)]
    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (-1, 0, ErrorCode.INVALID_REQUEST),
        (5, -1, ErrorCode.INVALID_REQUEST),
        (-(2**63), -(2**15), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_of_nobody_is_refused(
    client: RawClient, new_topic: NewTopic, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    topic, _ = new_topic()
    (marker,) = client.ask(marker_request(producer_id, epoch, topic, 0, -1, commit=False), 1).markers
    codes = [one.error_code for one in marker.topics[0].partitions]
    # Whether the partition is there is looked at first, as Kafka does.
    assert codes == [code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert stable_offset(client, topic) == 0


def test_partitions_that_are_none_cannot_take_part(
    client: RawClient, new_topic: NewTopic, producer: RawProducer
) -> None:
    topic, _ = new_topic()
    assert producer.add(topic, -1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(topic, 2**31 - 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.send(topic, b"v", partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.describe().transaction_state == "Empty"


def test_records_of_a_transaction_are_refused_on_a_connection_that_repeats_itself(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic, _ = new_topic()
    plain = produce(topic, one_batch(b"v", producer_id=900_001, producer_epoch=0, base_sequence=0))
    assert not client.ask(plain, 9).responses[0].partition_responses[0].error_code
    sneaky = produce(
        topic, one_batch(b"v", producer_id=900_001, producer_epoch=0, base_sequence=1, is_transactional=True)
    )
    answer = client.ask(sneaky, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stable_offset(client, topic) == 1
    cut_off = client.ask(produce(topic, one_batch(b"v")[:20]), 9).responses[0].partition_responses[0]
    assert cut_off.error_code, "shorter than what is looked at"


# -- what ends without its producer ------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted(client: RawClient, new_topic: NewTopic) -> None:
    producer, topic = begin_briefly(client, next(_names), lambda _: new_topic()[0], timeout_ms=100)
    seen = producer.wait_for_state("CompleteAbort")
    assert seen.producer_epoch == 1
    assert stable_offset(client, topic) == 2
    assert producer.send(topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    with (
        Broker({"transaction.partition.verification.enable": "false"}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        client.ask(create_topic("t"), 7)
        find_coordinator(client, "nobody")
        records = one_batch(b"v", producer_id=77, producer_epoch=3, base_sequence=0, is_transactional=True)
        client.ask(produce("t", records, transactional_id="nobody"), 9)
        asked = DescribeProducersRequest(topics=[DescribeProducersRequestTopicRequest(name="t", partition_indexes=[0])])
        (hanging,) = client.ask(asked, 0).topics[0].partitions[0].active_producers
        assert (hanging.producer_id, hanging.producer_epoch, hanging.current_txn_start_offset) == (77, 3, 0)
        assert client.ask(list_request(producer_id_filters=[77]), 2).transaction_states == []
        assert stable_offset(client, "t") == 0
        result = client.ask(marker_request(77, 3, "t", 0, commit=False), 1).markers[0].topics[0].partitions[0]
        assert result.error_code == ErrorCode.NONE
        assert stable_offset(client, "t") == 2
        assert committed_values(client, "t") == []


# -- replicas that lag behind ------------------------------------------------------------------------------------------


class Follower:
    """A second replica in sync, which has what the test lets it have: nothing is committed before that."""

    def __init__(self, broker: Broker, topic: str, index: int) -> None:
        self._broker = broker
        self._name = topic, index

    def _partition(self) -> Partition:
        return self._broker.running.replicas.find(*self._name)

    def _lead(self, replicas: tuple[int, ...], isr: tuple[int, ...], high_watermark: int) -> None:
        partition = self._partition()
        leader, end_offset = partition.leader, partition.log.end_offset
        partition.lead(
            Leader(leader.node_id, leader.epoch, replicas, isr, end_offset=end_offset, high_watermark=high_watermark)
        )

    def join(self, *, is_in_sync: bool = True) -> None:
        """One that is not in sync keeps the partition from taking anything: two replicas are asked for."""

        async def join() -> None:
            leader = self._partition().leader
            both = (leader.node_id, 2)
            self._lead(both, both if is_in_sync else both[:1], leader.high_watermark)

        self._broker.call(join())

    def leave(self) -> None:
        """The leader is the only replica again."""

        async def leave() -> None:
            partition = self._partition()
            alone = (partition.leader.node_id,)
            self._lead(alone, alone, partition.log.end_offset)

        self._broker.call(leave())

    def catch_up(self) -> None:
        async def catch_up() -> None:
            partition = self._partition()
            leader = partition.leader
            leader.record_end(leader.node_id, partition.log.end_offset)
            leader.record_end(2, partition.log.end_offset)
            partition.log.producers.passed_high_watermark(leader.high_watermark)
            partition.committed.fire()
            partition.moved.fire()

        self._broker.call(catch_up())


def is_answered(client: RawClient) -> bool:
    client.socket.settimeout(0.3)
    try:
        return bool(client.socket.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        client.socket.settimeout(WAIT_S)


def test_a_coordinator_tells_nothing_that_could_still_be_lost(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client, RawClient(restarted.bootstrap_servers) as other:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx")
        producer.init()
        follower = Follower(restarted, "__transaction_state", restarted.running.transactions.partition_of("tx"))
        follower.join()
        records = one_batch(
            b"v", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        client.send(produce("t", records, transactional_id="tx"), 12)
        assert not is_answered(client), "the partition is not known to take part"
        assert other.ask(fetch("t"), 11).responses[0].partitions[0].high_watermark == 0, "so nothing was appended"
        follower.catch_up()
        answer, _ = client.receive()
        assert not answer.responses[0].partition_responses[0].error_code
        client.send(end_request("tx", producer.producer_id, 0, commit=True), 5)
        assert not is_answered(client)
        assert stable_offset(other, "t") == 0, "no marker before the decision stands"
        follower.catch_up()
        answer, _ = client.receive()
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 1)
        wait_until(lambda: stable_offset(other, "t") == 2)


def test_a_transaction_is_complete_once_its_markers_are_committed(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        producer = RawProducer(client, "tx")
        producer.init()
        producer.send("t", b"v", partition=0)
        producer.send("t", b"v", partition=1)
        follower = Follower(restarted, "t", 1)
        follower.join()
        follower.catch_up()
        assert producer.end(commit=True) == ErrorCode.NONE
        assert producer.describe().transaction_state == "PrepareCommit"
        held_back = producer.send("t", b"w")
        assert held_back.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "asked again for a while, in vain"
        follower.catch_up()
        producer.wait_for_state("CompleteCommit")
        assert not producer.send("t", b"w").error_code


def test_a_partition_that_lags_behind_holds_up_no_other_transaction(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("slow"), 7)
        client.ask(create_topic("t"), 7)
        producers = [RawProducer(client, f"tx-{number}") for number in range(8)]
        for producer in producers:
            producer.init()
            producer.send("t", b"v")
        producers[0].send("slow", b"v")
        follower = Follower(restarted, "slow", 0)
        follower.join()
        for producer in producers:
            assert producer.end(commit=True) == ErrorCode.NONE
        for producer in producers[1:]:
            producer.wait_for_state("CompleteCommit")
        assert producers[0].describe().transaction_state == "PrepareCommit"
        follower.catch_up()
        producers[0].wait_for_state("CompleteCommit")


def test_a_completion_that_could_not_be_written_is_written_later(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx")
        producer.init()
        producer.send("t", b"v")
        data = Follower(restarted, "t", 0)
        data.join()
        data.catch_up()
        assert producer.end(commit=True) == ErrorCode.NONE
        state = Follower(restarted, "__transaction_state", restarted.running.transactions.partition_of("tx"))
        state.join(is_in_sync=False)
        data.catch_up()
        wait_until(lambda: stable_offset(client, "t") == 2)
        time.sleep(0.2)  # long enough for an attempt in vain
        assert producer.describe().transaction_state == "PrepareCommit"
        state.leave()
        producer.wait_for_state("CompleteCommit")


# -- producers that are silent -----------------------------------------------------------------------------------------


def test_silent_producers_are_forgotten_and_those_with_open_transactions_are_not() -> None:
    settings = {"producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "50"}
    with Broker(settings) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx")
        producer.init()
        producer.send("t", b"open")

        def plain(sequence: int) -> Any:
            records = one_batch(
                b"v",
                timestamps=int(time.time() * 1000),
                producer_id=900_000,
                producer_epoch=0,
                base_sequence=sequence,
            )
            return client.ask(produce("t", records), 9).responses[0].partition_responses[0]

        assert not plain(0).error_code
        assert plain(7).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

        def known() -> set[int]:
            entry = DescribeProducersRequestTopicRequest(name="t", partition_indexes=[0])
            found = client.ask(DescribeProducersRequest(topics=[entry]), 0).topics[0].partitions[0]
            return {one.producer_id for one in found.active_producers}

        wait_until(lambda: 900_000 not in known())
        assert known() == {producer.producer_id}
        assert not plain(7).error_code, "whoever is not known may start anywhere"
        assert not producer.send("t", b"goes on").error_code
        assert producer.end(commit=True) == ErrorCode.NONE


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose data outlives it."""
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
    }
    broker = Broker(settings, directory=tmp_path)
    with broker:
        yield broker


class Silent:
    """Performs nothing."""

    def perform(self, effect: object) -> None: ...

    def commits_unknown(self) -> None: ...


def silence_markers(broker: Broker) -> None:
    """The coordinator decides, and crashes before it tells anybody."""

    async def silence() -> None:
        for runner in broker.running.transactions.runners():
            runner._performer = Silent()

    broker.call(silence())


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_was_not_carried_out_is_carried_out_after_a_restart(
    restarted: Broker, commit: bool, version: int
) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        producer = RawProducer(client, "tx", version=version)
        producer.init()
        producer.send("t", b"v", partition=0)
        producer.send("t", b"w", partition=1)
        producer.commit_offset("group", "t", 7)
        silence_markers(restarted)
        assert producer.end(commit=commit) == ErrorCode.NONE
        assert producer.describe().transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
        assert committed_values(client, "t") == []
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        producer.client = client
        find_coordinator(client, "tx")
        producer.wait_for_state("CompleteCommit" if commit else "CompleteAbort")
        assert committed_values(client, "t", 0) == ([b"v"] if commit else [])
        assert committed_values(client, "t", 1) == ([b"w"] if commit else [])
        find_coordinator(client, "group", key_type=0)
        wait_until(lambda: committed_offset(client, "group", "t")[1] == ErrorCode.NONE)
        assert committed_offset(client, "group", "t")[0] == (7 if commit else -1)
        producer.send("t", b"next")
        assert producer.end(commit=True) == ErrorCode.NONE


@both_versions
def test_an_open_transaction_goes_on_after_a_restart(restarted: Broker, version: int) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx", version=version)
        producer.init()
        producer.send("t", b"before")
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        producer.client = client
        find_coordinator(client, "tx")
        producer.wait_for_state("Ongoing")
        assert stable_offset(client, "t") == 0
        assert not producer.send("t", b"after").error_code
        assert producer.end(commit=True) == ErrorCode.NONE
        assert committed_values(client, "t") == [b"before", b"after"]


def test_an_open_transaction_runs_into_its_timeout_after_a_restart(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        producer, topic = begin_briefly(client, "tx", lambda name: made(client, name), timeout_ms=500)
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        producer.client = client
        find_coordinator(client, producer.transactional_id)
        producer.wait_for_state("CompleteAbort")
        assert committed_values(client, topic) == []


@both_versions
def test_an_end_whose_answer_was_lost_is_answered_the_same_after_a_restart(restarted: Broker, version: int) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx", version=version)
        producer.init()
        producer.send("t", b"v")
        before = producer.epoch
        assert producer.end(commit=True) == ErrorCode.NONE
        after = producer.epoch
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        producer.client = client
        producer.epoch = before
        find_coordinator(client, "tx")
        producer.wait_for_state("CompleteCommit")
        assert producer.end(commit=False) == ErrorCode.INVALID_TXN_STATE
        assert producer.end(commit=True) == ErrorCode.NONE
        assert producer.epoch == after


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_waits_for_its_outside_coordinator(restarted: Broker, commit: bool) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx")
        producer.init(api_version=6, enable2_pc=True)
        producer.send("t", b"v")
        prepared = producer.producer_id, producer.epoch
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        successor = RawProducer(client, "tx")
        answer: Any = successor.init(api_version=6, enable2_pc=True, keep_prepared_txn=True)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == prepared
        assert successor.describe().transaction_timeout_ms == 2**31 - 1
        assert successor.end(commit=commit) == ErrorCode.NONE
        assert committed_values(client, "t") == ([b"v"] if commit else [])
        successor.send("t", b"next")
        assert successor.end(commit=True) == ErrorCode.NONE
        assert committed_values(client, "t")[-1] == b"next"


def test_two_phase_commit_is_announced_where_it_is_allowed(restarted: Broker, broker: Broker) -> None:
    highest = {}
    for side, where in (("allowed", restarted), ("not", broker)):
        with RawClient(where.bootstrap_servers) as client:
            answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
            highest[side] = next(one.max_version for one in answer.api_keys if one.api_key == 22)
            features = {one.name: one.max_version_level for one in answer.finalized_features}
            assert features["transaction.version"] == 2
    assert highest == {"allowed": 6, "not": 5}


def test_duplicates_are_recognised_after_a_restart_and_after_the_end(restarted: Broker) -> None:
    with RawClient(restarted.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        producer = RawProducer(client, "tx", version=1)
        producer.init()
        producer.send("t", b"v")
    restarted.restart()
    with RawClient(restarted.bootstrap_servers) as client:
        producer.client = client
        find_coordinator(client, "tx")
        producer.wait_for_state("Ongoing")
        again = producer.send("t", b"v", sequence=0)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        assert producer.send("t", b"gap", sequence=5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
