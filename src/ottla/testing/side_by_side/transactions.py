"""A side that talks about transactions, and writes the answers down in short: codes, epochs, states, offsets.

Kafka carries out an end after it has answered, we before: where that shows, both are waited for (`rest`).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ottla.errors import ErrorCode
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeProducersRequestTopicRequest
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
)
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import fetch, one_batch, produce
from ottla.testing.raw_transactions import (
    RawProducer,
    add_request,
    ask_until_ready,
    begin_briefly,
    end_request,
    find_coordinator,
    init_request,
    list_request,
    marker_request,
    offsets_request,
)
from ottla.testing.side_by_side.side import Side


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Speaker(NamedTuple):
    """Who a request says that it comes from."""

    id: str
    producer_id: int
    epoch: int

    @classmethod
    def of(cls, producer: RawProducer, **other: Any) -> Speaker:
        """The producer, but for what a test makes it say in place of the truth."""
        return cls(producer.transactional_id, producer.producer_id, producer.epoch)._replace(**other)


class TransactionSide(Side):
    """A side that asks as producers and coordinators of transactions do.

    What a method takes beyond its own fields goes to `Speaker.of`: another id, another epoch.
    """

    def id(self, producer_id: int) -> str | int:
        """A producer id by its order: both brokers give out their own."""
        return producer_id if producer_id <= 0 else self.transcript.label("producer_id", producer_id)

    def producer(self, name: str, **how: Any) -> RawProducer:
        """A producer that was let in."""
        find_coordinator(self.client, self.name(name))
        self.new_producer_id()
        producer = RawProducer(self.client, self.name(name), **how)
        self.note("let in", self.id(producer.init().producer_id), producer.epoch)
        return producer

    def begin_briefly(self, name: str, **how: Any) -> tuple[RawProducer, str]:
        """A producer with a record in a transaction whose time is up soon, and its topic."""
        return begin_briefly(self.client, self.name(name), lambda topic: self.new_topic(self.own_name(topic))[0], **how)

    def init(self, name: str, version: int = 5, *, timeout_ms: int = 60_000, waits: bool = True, **fields: Any) -> Any:
        request = init_request(name and self.name(name), timeout_ms, **fields)
        answer = (ask_until_ready if waits else RawClient.ask)(self.client, request, version)
        self.note("init", version, name_of(answer.error_code), self.id(answer.producer_id), answer.producer_epoch)
        return answer

    def add(self, producer: RawProducer, topic: str, *partitions: int, version: int = 3, **other: Any) -> None:
        request = add_request(*Speaker.of(producer, **other), topic, *partitions)
        results = self.client.ask(request, version).results_by_topic_v3_and_below
        codes = {
            one.partition_index: name_of(one.partition_error_code)
            for result in results
            for one in result.results_by_partition
        }
        self.note("add", version, sorted(codes.items()))

    def add_many(self, version: int, *transactions: AddPartitionsToTxnTransaction) -> None:
        answer = self.client.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
        self.note(
            "add many",
            name_of(answer.error_code),
            sorted(
                (result.transactional_id, one.partition_index, name_of(one.partition_error_code))
                for result in answer.results_by_transaction
                for topic in result.topic_results
                for one in topic.results_by_partition
            ),
        )

    def produce(
        self,
        producer: RawProducer,
        topic: str,
        sequence: int,
        *,
        version: int = 12,
        is_transactional: bool = True,
        **other: Any,
    ) -> None:
        speaker = Speaker.of(producer, **other)
        records = one_batch(
            b"v",
            timestamps=int(time.time() * 1000),
            producer_id=speaker.producer_id,
            producer_epoch=speaker.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        request = produce(topic, records, transactional_id=speaker.id)
        answer = self.client.ask(request, version).responses[0].partition_responses[0]
        self.note("produce", version, sequence, name_of(answer.error_code), answer.base_offset)

    def end(self, producer: RawProducer, *, commit: bool, version: int = 5, **other: Any) -> None:
        answer = self.client.ask(end_request(*Speaker.of(producer, **other), commit=commit), version)
        new = (self.id(answer.producer_id), answer.producer_epoch) if version >= 5 else None
        self.note("end", version, commit, name_of(answer.error_code), new)

    def rest(self, producer: RawProducer) -> None:
        """Until the end has reached everybody."""
        producer.wait_for_state("CompleteCommit", "CompleteAbort", "Empty")
        self.describe(producer.transactional_id)

    def describe(self, transactional_id: str) -> None:
        answer = self.client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        (state,) = answer.transaction_states
        self.note(
            "described",
            name_of(state.error_code),
            state.transaction_state,
            self.id(state.producer_id),
            state.producer_epoch,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms > 0,
            sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics),
        )

    def list(self, version: int = 2, **filters: Any) -> None:
        answer = self.client.ask(list_request(**filters), version)
        ours = [one for one in answer.transaction_states if one.transactional_id.startswith(self.name(""))]
        self.note(
            "listed",
            name_of(answer.error_code),
            answer.unknown_state_filters,
            sorted((one.transactional_id, self.id(one.producer_id), one.transaction_state) for one in ours),
        )

    def markers(self, version: int, producer: RawProducer, topic: str, *partitions: int, **fields: Any) -> None:
        epoch = fields.pop("epoch", producer.epoch)
        request = marker_request(producer.producer_id, epoch, topic, *partitions, **fields)
        (marker,) = self.client.ask(request, version).markers
        codes = [(one.partition_index, name_of(one.error_code)) for one in marker.topics[0].partitions]
        self.note("markers", version, epoch, self.id(marker.producer_id), sorted(codes))

    def producers(self, topic: str) -> None:
        entry = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0])
        partition = self.client.ask(DescribeProducersRequest(topics=[entry]), 0).topics[0].partitions[0]
        self.note(
            "producers",
            sorted(
                (
                    self.id(one.producer_id),
                    one.producer_epoch,
                    one.last_sequence,
                    one.coordinator_epoch,
                    one.current_txn_start_offset,
                )
                for one in partition.active_producers
            ),
        )

    def readable(self, topic: str) -> None:
        answer = self.client.ask(fetch(topic, isolation_level=1), 11).responses[0].partitions[0]
        aborted = [(self.id(one.producer_id), one.first_offset) for one in answer.aborted_transactions or ()]
        self.note("readable", answer.high_watermark, answer.last_stable_offset, aborted)

    def offsets(
        self, producer: RawProducer, topic: str, version: int, group: str = "group", *, offset: int = 5, **other: Any
    ) -> None:
        request = offsets_request(*Speaker.of(producer, **other), group and self.name(group), topic, offset)
        answer = self.client.ask(request, version)
        self.note("offsets", version, name_of(answer.topics[0].partitions[0].error_code))

    def committed(self, topic: str, *, stable: bool) -> None:
        entry = OffsetFetchRequestGroup(
            group_id=self.name("group"), topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        answer = self.client.ask(OffsetFetchRequest(groups=[entry], require_stable=stable), 8).groups[0]
        found = answer.topics[0].partitions[0]
        self.note("committed", stable, found.committed_offset, name_of(found.error_code))
