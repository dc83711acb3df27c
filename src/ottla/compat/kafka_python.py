"""kafka-python's producer, consumer and admin client, with its names and defaults (3.0).

from ottla.compat.kafka_python import KafkaConsumer, KafkaProducer
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self

from ottla.client.admin.blocking import Admin
from ottla.client.admin.topics import NewTopic as OurNewTopic
from ottla.client.consumer.blocking import Consumer
from ottla.client.consumer.errors import CommitFailedError as CommitFailedError
from ottla.client.error_codes import TopicAlreadyExistsError as TopicAlreadyExistsError
from ottla.client.error_codes import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
from ottla.client.errors import TimedOutError
from ottla.client.producer.blocking import Producer
from ottla.client.producer.deliveries import RecordFuture
from ottla.client.values import ConsumerGroupMetadata
from ottla.client.values import ConsumerRecord as OurRecord
from ottla.client.values import OffsetAndMetadata as OffsetAndMetadata
from ottla.client.values import OffsetAndTimestamp as OffsetAndTimestamp
from ottla.client.values import RecordMetadata as RecordMetadata
from ottla.compat.not_here import Partial, translated
from ottla.errors import ApiError
from ottla.errors import OttlaError as KafkaError
from ottla.ids import TopicPartition as TopicPartition
from ottla.net.client import CannotConnectError as NoBrokersAvailable

KafkaTimeoutError = TimedOutError

_LIBRARY: Final = "kafka-python"
_WITHOUT_EFFECT: Final = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_timeout_ms",
        "client_dns_lookup",
        "enable_incremental_fetch_sessions",
        "kafka_client",
        "metric_group_prefix",
        "metrics_enabled",
        "receive_buffer_bytes",
        "selector",
        "send_buffer_bytes",
        "sock_chunk_buffer_count",
        "sock_chunk_bytes",
        "socket_options",
    }
)
_REFUSED: Final = {"socks5_proxy": "there is no proxy", "ssl_crlfile": "give an ssl_context"}
_DEFAULTS: Final = {"bootstrap_servers": "localhost:9092", "reconnect_backoff_max_ms": 30000}


def _settings(given: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    settings = translated(given, {**_DEFAULTS, **defaults}, _WITHOUT_EFFECT, _REFUSED)
    if settings.get("retries") == math.inf:
        del settings["retries"]
    return settings


def _seconds(timeout_ms: float | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


class Future:
    """What `send` returns: `get`, `add_callback`, `add_errback`, `succeeded`, `failed`."""

    def __init__(self, future: RecordFuture) -> None:
        self._future = future

    def get(self, timeout: float | None = None) -> RecordMetadata:
        return self._future.result(timeout)

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def succeeded(self) -> bool:
        return self.is_done and self._future.exception() is None

    def failed(self) -> bool:
        return self.is_done and self._future.exception() is not None

    @property
    def value(self) -> RecordMetadata | None:
        return self._future.result() if self.succeeded() else None

    @property
    def exception(self) -> BaseException | None:
        return self._future.exception() if self.is_done else None

    def add_callback(self, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Self:
        def ended(future: RecordFuture) -> None:
            if future.exception() is None:
                call(*arguments, future.result(), **keywords)

        self._future.add_done_callback(ended)
        return self

    def add_errback(self, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Self:
        def ended(future: RecordFuture) -> None:
            if (error := future.exception()) is not None:
                call(*arguments, error, **keywords)

        self._future.add_done_callback(ended)
        return self


class _Partitioner:
    """A function of (key, all partitions, available ones)."""

    def __init__(self, choose: Callable[[Any, list[int], list[int]], int]) -> None:
        self._choose = choose

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Collection[int]) -> int:
        return self._choose(key, list(range(partition_count)), list(available))


def _serializer(given: Any) -> Any:
    """A function, or an object with `serialize(topic, value)`."""
    if given is None or not hasattr(given, "serialize"):
        return given
    return lambda value: given.serialize("", value)


class KafkaProducer(Partial):
    library: ClassVar[str] = _LIBRARY

    def __init__(self, **configs: Any) -> None:
        configs.pop("allow_auto_create_topics", None)
        for name in ("key_serializer", "value_serializer"):
            if configs.get(name) is not None:
                configs[name] = _serializer(configs[name])
        if callable(configs.get("partitioner")) and not hasattr(configs["partitioner"], "partition"):
            configs["partitioner"] = _Partitioner(configs["partitioner"])
        self._producer: Producer[Any, Any] = Producer(_settings(configs, linger_ms=0))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future:
        sent = self._producer.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp_ms,
            headers=None if headers is None else list(headers),
        )
        return Future(sent)

    def flush(self, timeout: float | None = None) -> None:
        self._producer.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        self._producer.close(timeout)

    def partitions_for(self, topic: str) -> set[int]:
        return set(self._producer.partitions_for(topic))

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        return _metrics(self._producer.metrics())

    def init_transactions(self) -> None:
        self._producer.init_transactions()

    def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    def commit_transaction(self) -> None:
        self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        self._producer.abort_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        self._producer.send_offsets_to_transaction(offsets, group_metadata)


def _metrics(values: Mapping[Any, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        found.setdefault(name.group, {})[name.name] = value
    return found


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


def _record(found: OurRecord[Any, Any]) -> ConsumerRecord:
    headers = list(found.headers)
    return ConsumerRecord(
        found.topic,
        found.partition,
        -1 if found.leader_epoch is None else found.leader_epoch,
        found.offset,
        found.timestamp,
        found.timestamp_type,
        found.key,
        found.value,
        headers,
        None,
        found.serialized_key_size,
        found.serialized_value_size,
        sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else -1,
    )


class ConsumerRebalanceListener:
    """Callbacks of rebalances: override these."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None: ...

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...


def _deserializer(given: Any) -> Any:
    if given is None or not hasattr(given, "deserialize"):
        return given
    return lambda data: given.deserialize("", data)


def _assignor(given: Any) -> Any:
    """kafka-python's classes are known by their names."""
    return getattr(given, "name", given) if isinstance(given, type) else given


class KafkaConsumer(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {"bootstrap": "the constructor connects"}

    def __init__(self, *topics: str, **configs: Any) -> None:
        timeout_ms = configs.pop("consumer_timeout_ms", math.inf)
        self._iteration_s = timeout_ms / 1000
        for name in ("key_deserializer", "value_deserializer"):
            if configs.get(name) is not None:
                configs[name] = _deserializer(configs[name])
        strategies = configs.pop("partition_assignment_strategy", ("range", "roundrobin"))
        settings = _settings(configs)
        settings["partition_assignment_strategy"] = [_assignor(each) for each in strategies]
        settings.pop("max_in_flight_requests_per_connection", None)
        if settings.get("group_id") is None:
            settings.pop("enable_auto_commit", None)
        names = list(topics[0]) if len(topics) == 1 and not isinstance(topics[0], str) else list(topics)
        self._consumer: Consumer[Any, Any] = Consumer(settings)
        if names:
            if settings.get("group_id") is not None:
                self._consumer.subscribe(names)
            else:
                self._consumer.assign(
                    [TopicPartition(name, number) for name in names for number in self._consumer.partitions_for(name)]
                )

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        found = self._consumer.poll(timeout_ms / 1000, max_records)
        return {partition: list(map(_record, records)) for partition, records in found.items()}

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; the iteration ends after `consumer_timeout_ms` without one."""
        waited_s = 0.0
        while waited_s < self._iteration_s:
            step_s = min(1.0, self._iteration_s - waited_s)
            for records in self._consumer.poll(step_s, 1).values():
                return _record(records[0])
            waited_s += step_s
        raise StopIteration

    def subscribe(self, topics: Collection[str] = (), pattern: str | None = None, listener: Any | None = None) -> None:
        calls: dict[str, Any] = {}
        if listener is not None:
            calls = {"on_assigned": listener.on_partitions_assigned, "on_revoked": listener.on_partitions_revoked}
        if pattern is not None:
            self._consumer.subscribe(pattern=re.compile(pattern), **calls)
        else:
            self._consumer.subscribe([topics] if isinstance(topics, str) else list(topics), **calls)

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def subscription(self) -> set[str] | None:
        return set(self._consumer.subscription()) or None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        return set(self._consumer.assignment())

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        self._consumer.commit(offsets, _seconds(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self._consumer.commit_async(offsets, callback)

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        found = self._consumer.committed([partition], _seconds(timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        return self._consumer.position(partition, _seconds(timeout_ms))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._consumer.seek_to_end(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self._consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._consumer.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        return set(self._consumer.paused())

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._consumer.beginning_offsets(partitions, _seconds(timeout_ms))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._consumer.end_offsets(partitions, _seconds(timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return dict(self._consumer.offsets_for_times(dict(timestamps), _seconds(timeout_ms)))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        try:
            return set(self._consumer.partitions_for(topic))
        except ApiError:
            return None

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        return _metrics(self._consumer.metrics())

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        if timeout_ms is None:
            self._consumer.close()
        else:
            self._consumer.close(timeout_ms / 1000)


class NewTopic(NamedTuple):
    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, list[int]] | None = None
    topic_configs: Mapping[str, str] | None = None


class KafkaAdminClient(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {
        "describe_configs": "use ottla.Admin.describe_config",
        "alter_configs": "use ottla.Admin.alter_config",
        "describe_groups": "use ottla.Admin.describe_groups",
        "list_group_offsets": "use ottla.Admin.committed_offsets, or ottla.Admin.lag",
        "reset_group_offsets": "use ottla.Admin.reset_offsets",
    }

    def __init__(self, **configs: Any) -> None:
        configs.pop("max_in_flight_requests_per_connection", None)
        self._admin = Admin(_settings(configs))

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        wanted = [
            OurNewTopic(
                each.name,
                each.num_partitions,
                each.replication_factor,
                [each.replica_assignments[number] for number in sorted(each.replica_assignments)]
                if each.replica_assignments
                else (),
                each.topic_configs,
            )
            for each in new_topics
        ]
        made = self._admin.create_topics(wanted, validate_only=validate_only, timeout_s=_seconds(timeout_ms))
        return dict(_raised(made, raise_errors))

    def delete_topics(
        self, topics: Iterable[str], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        gone = self._admin.delete_topics(list(topics), timeout_s=_seconds(timeout_ms))
        return {str(name): outcome for name, outcome in _raised(gone, raise_errors).items()}

    def list_topics(self) -> list[str]:
        return self._admin.list_topics(include_internal=True)

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10000) -> None:
        for name in topic_names:
            self._admin.wait_for_topic(name, timeout_s=timeout_ms / 1000)

    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, Any]:
        outcomes = self._admin.delete_records(records_to_delete, timeout_s=_seconds(timeout_ms))
        return dict(_raised(outcomes, True))

    def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Any]:
        return dict(self._admin.delete_groups(group_ids))

    def close(self) -> None:
        self._admin.close()


def _raised(outcomes: Mapping[Any, Any], raise_errors: bool) -> Mapping[Any, Any]:
    for outcome in outcomes.values():
        if raise_errors and isinstance(outcome, ApiError):
            raise outcome
    return outcomes


__all__ = [
    "CommitFailedError",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "Future",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "KafkaTimeoutError",
    "NewTopic",
    "NoBrokersAvailable",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "UnknownTopicOrPartitionError",
]
