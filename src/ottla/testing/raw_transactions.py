"""A transactional producer request by request, for tests that say what happens when.

    producer = RawProducer(client, "tx")
    producer.init()
    producer.send("topic", b"value")
    producer.end(commit=True)

Nothing is retried but what a new broker asks everybody to wait for. `version` 2 speaks as producers of Kafka 4 do: no
AddPartitionsToTxn, and a new epoch after each end; version 1 as those before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import one_batch, produce
from ottla.testing.waiting import WAIT_S

GROUP_KEY, TRANSACTION_KEY = 0, 1
WAITED_FOR = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def find_coordinator(client: RawClient, key: str, key_type: int = TRANSACTION_KEY) -> None:
    """Waits until somebody coordinates; the topic is made on the way."""
    deadline = time.monotonic() + WAIT_S
    while client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4).coordinators[0].error_code:
        assert time.monotonic() < deadline, f"nobody coordinates {key}"
        time.sleep(0.02)


def ask_until_ready(client: RawClient, request: object, version: int) -> Any:
    """The first answer that does not ask to wait."""
    deadline = time.monotonic() + WAIT_S
    while (answer := client.ask(request, version)).error_code in WAITED_FOR:
        assert time.monotonic() < deadline, ErrorCode(answer.error_code).name
        time.sleep(0.01)
    return answer


def init_request(transactional_id: str | None, timeout_ms: int = 60_000, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields)


def add_request(
    transactional_id: str, producer_id: int, epoch: int, topic: str, *partitions: int
) -> AddPartitionsToTxnRequest:
    """As producers ask, up to version 3."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


def end_request(transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )


def offsets_request(
    transactional_id: str, producer_id: int, epoch: int, group: str, topic: str, offset: int, partition: int = 0
) -> TxnOffsetCommitRequest:
    committed = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
    )


def marker_request(
    producer_id: int,
    epoch: int,
    topic: str,
    *partitions: int,
    commit: bool,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def list_request(**filters: Any) -> ListTransactionsRequest:
    return ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})


def begin_briefly(
    client: RawClient, name: str, new_topic: Callable[[str], str], *, timeout_ms: int, version: int = 2
) -> tuple[RawProducer, str]:
    """A producer with a record in a transaction whose time is up soon, and the topic of that record.

    Where a busy machine lets the time pass before the record is in, that attempt shows nothing, and the next one has an
    id and a topic of its own: what a caller sees is the same on every machine.
    """
    deadline = time.monotonic() + WAIT_S
    for attempt in count():
        producer = RawProducer(client, f"{name}-{attempt}", version=version)
        topic = new_topic(f"{name}-{attempt}")
        producer.init(timeout_ms)
        if not producer.send(topic, b"v").error_code:
            return producer, topic
        assert time.monotonic() < deadline, f"no transaction could begin within {timeout_ms} ms"
    raise AssertionError("numbers do not end")


class RawProducer:
    """One transactional id, with the id, epoch and sequences that it was given."""

    def __init__(self, client: RawClient, transactional_id: str, *, version: int = 2) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, *, api_version: int = 5, **fields: Any) -> Any:
        """Introduces itself and waits until it may begin."""
        find_coordinator(self.client, self.transactional_id)
        request = init_request(self.transactional_id, timeout_ms, **fields)
        answer = ask_until_ready(self.client, request, api_version)
        if not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return answer

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()

    def add(self, topic: str, *partitions: int, api_version: int = 3) -> list[ErrorCode]:
        request = add_request(self.transactional_id, self.producer_id, self.epoch, topic, *partitions)
        results = self.client.ask(request, api_version).results_by_topic_v3_and_below
        return [ErrorCode(one.partition_error_code) for result in results for one in result.results_by_partition]

    def send(self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None) -> Any:
        """One batch; the answer for its partition. A version 1 producer adds the partition first."""
        if self.version == 1:
            self.add(topic, partition)
        first = self._sequences.get((topic, partition), 0) if sequence is None else sequence
        records = one_batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            is_transactional=True,
        )
        request = produce(topic, records, partition=partition, transactional_id=self.transactional_id)
        answer = self.client.ask(request, 12 if self.version == 2 else 11).responses[0].partition_responses[0]
        if not answer.error_code:
            self._sequences[topic, partition] = first + len(values)
        return answer

    def end(self, *, commit: bool) -> ErrorCode:
        request = end_request(self.transactional_id, self.producer_id, self.epoch, commit=commit)
        answer = self.client.ask(request, 5 if self.version == 2 else 4)
        if not answer.error_code and self.version == 2:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def commit_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        """An offset of a group as a part of the transaction."""
        find_coordinator(self.client, group, GROUP_KEY)
        if self.version == 1:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            code = self.client.ask(added, 3).error_code
            if code:
                return ErrorCode(code)
        request = offsets_request(self.transactional_id, self.producer_id, self.epoch, group, topic, offset)
        answer = self.client.ask(request, 5 if self.version == 2 else 3)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def describe(self) -> Any:
        return self.client.ask(
            DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0
        ).transaction_states[0]

    def wait_for_state(self, *states: str) -> Any:
        """Waits until the transaction is in one of the states, and tells about it."""
        deadline = time.monotonic() + WAIT_S
        while (seen := self.describe()).transaction_state not in states:
            assert time.monotonic() < deadline, f"{self.transactional_id} is {seen.transaction_state}, not {states}"
            time.sleep(0.01)
        return seen
