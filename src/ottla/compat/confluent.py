"""confluent-kafka's producer, consumer and admin client, with its names and defaults (2.x).

    from ottla.compat.confluent import Consumer, Producer

Callbacks are called by `poll` and `flush`, in the thread that calls them, as there. Keys go where librdkafka sends them
(CRC32), and consumers read committed records only, unless the settings say otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Final

from ottla.client.admin.blocking import Admin
from ottla.client.admin.topics import NewTopic as OurNewTopic
from ottla.client.consumer.blocking import Consumer as OurConsumer
from ottla.client.errors import AbortableError, BufferExhaustedError, FatalError
from ottla.client.producer.blocking import Producer as OurProducer
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, RecordMetadata
from ottla.compat.not_here import Partial, translated
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import TopicPartition as OurPartition

_LIBRARY: Final = "confluent-kafka"
OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001
TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2
_FOREVER_S: Final = 1e9

_WITHOUT_EFFECT: Final = frozenset(
    {
        "api.version.request",
        "broker.address.family",
        "broker.version.fallback",
        "debug",
        "enable.partition.eof",
        "error_cb",
        "log_level",
        "logger",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "statistics.interval.ms",
        "stats_cb",
        "throttle_cb",
    }
)
_REFUSED: Final = {
    "oauth_cb": "give sasl_oauth_token_provider",
    "plugin.library.paths": "there are no plugins",
    "on_commit": "give commit() its own error handling",
}


class KafkaError(Exception):
    """An error as a value: `code()`, `name()`, `str()`, `retriable()`, `fatal()`, `txn_requires_abort()`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self._error = error

    def code(self) -> int:
        return int(self._error.code) if isinstance(self._error, ApiError) else int(ErrorCode.UNKNOWN_SERVER_ERROR)

    def name(self) -> str:
        return self._error.code.name if isinstance(self._error, ApiError) else type(self._error).__name__

    def str(self) -> str:
        return str(self._error)

    def retriable(self) -> bool:
        return isinstance(self._error, ApiError) and self._error.code.retriable

    def fatal(self) -> bool:
        return isinstance(self._error, FatalError)

    def txn_requires_abort(self) -> bool:
        return isinstance(self._error, AbortableError)


class KafkaException(Exception):  # noqa: N818  # its name
    """Raised, with a KafkaError as its first argument."""


def _raise(error: OttlaError) -> None:
    raise KafkaException(KafkaError(error)) from error


class TopicPartition:
    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    @property
    def _ours(self) -> OurPartition:
        return OurPartition(self.topic, self.partition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and (self.topic, self.partition) == (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __repr__(self) -> str:
        return f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset}}}"


class Message:
    """A record, by methods. `error()` is None: what goes wrong is raised."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int | None,
        key: Any,
        value: Any,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        error: KafkaError | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset
        self._key, self._value, self._headers = key, value, list(headers)
        self._timestamp, self._error, self._leader_epoch = timestamp, error, leader_epoch

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp

    def error(self) -> KafkaError | None:
        return self._error

    def leader_epoch(self) -> int | None:
        return self._leader_epoch

    def __len__(self) -> int:
        return len(self._value or b"")


def _message(record: ConsumerRecord[Any, Any]) -> Message:
    return Message(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        record.headers,
        (record.timestamp_type + 1, record.timestamp),
        None,
        record.leader_epoch,
    )


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data


class Producer(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {
        "produce_batch": "use ottla.Producer.send_columns",
        "purge": "close() with a timeout drops what is left",
    }

    def __init__(self, conf: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        defaults = {"partitioner": "consistent_random", "enable.idempotence": False, "linger.ms": 5}
        given = {**(conf or {}), **keywords}
        if given.get("transactional.id") is not None:
            defaults["enable.idempotence"] = True
        self._callback = given.pop("on_delivery", None) or given.pop("dr_cb", None)
        self._producer = OurProducer(translated(given, defaults, _WITHOUT_EFFECT, _REFUSED))
        self._ended: deque[Callable[[], None]] = deque()
        self._open = 0

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        callback: Callable[[KafkaError | None, Message], Any] | None = None,
        on_delivery: Callable[[KafkaError | None, Message], Any] | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
    ) -> None:
        call = on_delivery or callback or self._callback
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        encoded = [(name, _bytes(content)) for name, content in pairs]

        def ended(metadata: RecordMetadata | None, error: BaseException | None) -> None:
            def report() -> None:
                self._open -= 1
                if call is None:
                    return
                failure = None if error is None else KafkaError(error)
                sent = metadata or RecordMetadata(topic, -1, OFFSET_INVALID, 0)
                times = (TIMESTAMP_CREATE_TIME, sent.timestamp)
                where = sent.partition, sent.offset
                call(failure, Message(topic, *where, _bytes(key), _bytes(value), encoded, times, failure))

            self._ended.append(report)

        self._open += 1
        try:
            self._producer.send(
                topic,
                _bytes(value),
                _bytes(key),
                partition=None if partition < 0 else partition,
                timestamp=timestamp or None,
                headers=encoded,
                on_delivery=ended,
            )
        except BufferExhaustedError as error:
            self._open -= 1
            raise BufferError(str(error)) from error
        except OttlaError as error:
            self._open -= 1
            _raise(error)

    def poll(self, timeout: float = -1) -> int:
        """Calls the callbacks of what has been decided; nothing else has to be pumped."""
        count = 0
        while self._ended:
            self._ended.popleft()()
            count += 1
        return count

    def flush(self, timeout: float = -1) -> int:
        try:
            self._producer.flush(None if timeout < 0 else timeout)
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                _raise(error)
        self.poll(0)
        return self._open

    def __len__(self) -> int:
        return self._open

    def __bool__(self) -> bool:
        return True

    def close(self, timeout: float = -1) -> bool:
        self._producer.close(None if timeout < 0 else timeout)
        self.poll(0)
        return self._open == 0

    def init_transactions(self, timeout: float = -1) -> None:
        self._try(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        self._try(self._producer.begin_transaction)

    def commit_transaction(self, timeout: float = -1) -> None:
        self._try(self._producer.commit_transaction)

    def abort_transaction(self, timeout: float = -1) -> None:
        self._try(self._producer.abort_transaction)

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: ConsumerGroupMetadata, timeout: float = -1
    ) -> None:
        offsets = {each._ours: each.offset for each in positions}
        self._try(lambda: self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OttlaError as error:
            _raise(error)


class Consumer(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {
        "store_offsets": "give enable.auto.commit=false and commit(message=...)",
        "incremental_assign": "rebalances are always incremental; nothing has to be assigned in callbacks",
        "incremental_unassign": "rebalances are always incremental; nothing has to be unassigned in callbacks",
        "memberid": "use consumer_group_metadata()",
    }

    def __init__(self, conf: Mapping[str, Any] | None = None, /, **keywords: Any) -> None:
        defaults = {
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "check.crcs": False,
            "partition.assignment.strategy": "range,roundrobin",
        }
        given = {**(conf or {}), **keywords}
        self._consumer: OurConsumer[bytes, bytes] = OurConsumer(translated(given, defaults, _WITHOUT_EFFECT, _REFUSED))

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callable[[Consumer, list[TopicPartition]], Any] | None = None,
        on_revoke: Callable[[Consumer, list[TopicPartition]], Any] | None = None,
        on_lost: Callable[[Consumer, list[TopicPartition]], Any] | None = None,
    ) -> None:
        calls = {
            "on_assigned": self._told(on_assign),
            "on_revoked": self._told(on_revoke),
            "on_lost": self._told(on_lost or on_revoke),
        }
        patterns = [name for name in topics if name.startswith("^")]
        if patterns:
            names = [f"^{name}$" for name in topics if not name.startswith("^")]
            self._consumer.subscribe(pattern="|".join(f"(?:{each})" for each in [*patterns, *names]), **calls)
        else:
            self._consumer.subscribe(list(topics), **calls)

    def _told(self, call: Callable[[Consumer, list[TopicPartition]], Any] | None) -> Any:
        if call is None:
            return None
        return lambda partitions: call(self, [TopicPartition(*each) for each in sorted(partitions)])

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        if set(self._consumer.subscription()):
            return  # inside of a callback: what is assigned is assigned already
        self._consumer.assign([each._ours for each in partitions])
        for each in partitions:
            if each.offset == OFFSET_BEGINNING:
                self._consumer.seek_to_beginning(each._ours)
            elif each.offset == OFFSET_END:
                self._consumer.seek_to_end(each._ours)
            elif each.offset >= 0:
                self._consumer.seek(each._ours, each.offset)

    def unassign(self) -> None:
        self._consumer.assign([])

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*each) for each in sorted(self._consumer.assignment())]

    def poll(self, timeout: float = -1) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        try:
            found = self._consumer.take(_FOREVER_S if timeout < 0 else timeout, num_messages)
        except OttlaError as error:
            _raise(error)
        return list(map(_message, found))

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """`message` is done: the next one is committed. `offsets` are committed as they are."""
        what: dict[OurPartition, int | OffsetAndMetadata] | None = None
        if message is not None:
            assert message.offset() is not None, "a message that was read has an offset"
            what = {OurPartition(message.topic(), message.partition()): (message.offset() or 0) + 1}
        elif offsets is not None:
            what = {each._ours: OffsetAndMetadata(each.offset, each.metadata or "") for each in offsets}
        if asynchronous:
            self._consumer.commit_async(what)
            return None
        try:
            self._consumer.commit(what)
        except OttlaError as error:
            _raise(error)
        return [
            TopicPartition(*place, offset if isinstance(offset, int) else offset.offset)
            for place, offset in (what or {}).items()
        ]

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        found = self._consumer.committed([each._ours for each in partitions], None if timeout < 0 else timeout)
        return [
            TopicPartition(*place, OFFSET_INVALID if each is None else each.offset) for place, each in found.items()
        ]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(*each._ours, self._consumer.position(each._ours)) for each in partitions]

    def seek(self, partition: TopicPartition) -> None:
        self._consumer.seek(partition._ours, partition.offset)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.pause(*(each._ours for each in partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.resume(*(each._ours for each in partitions))

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        limit_s = None if timeout < 0 else timeout
        begin = self._consumer.beginning_offsets([partition._ours], limit_s)[partition._ours]
        return begin, self._consumer.end_offsets([partition._ours], limit_s)[partition._ours]

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The time is in the field of the offset, as there."""
        found = self._consumer.offsets_for_times(
            {each._ours: each.offset for each in partitions}, None if timeout < 0 else timeout
        )
        return [TopicPartition(*place, OFFSET_END if each is None else each.offset) for place, each in found.items()]

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    def close(self) -> None:
        self._consumer.close()


class NewTopic:
    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: Sequence[Sequence[int]] = (),
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self._ours = OurNewTopic(topic, num_partitions, replication_factor, replica_assignment, config)


class AdminClient(Partial):
    """Each call returns a future for every key, which is done."""

    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {
        "list_topics": "use ottla.Admin.list_topics or ottla.Admin.metadata",
        "describe_configs": "use ottla.Admin.describe_configs",
        "incremental_alter_configs": "use ottla.Admin.alter_configs",
        "list_consumer_groups": "use ottla.Admin.list_groups",
        "list_consumer_group_offsets": "use ottla.Admin.committed_offsets",
    }

    def __init__(self, conf: Mapping[str, Any], /) -> None:
        self._admin = Admin(translated(conf, {}, _WITHOUT_EFFECT, _REFUSED))

    def create_topics(self, new_topics: Iterable[NewTopic], validate_only: bool = False) -> dict[str, Future[None]]:
        made = self._admin.create_topics([each._ours for each in new_topics], validate_only=validate_only)
        return {name: _future(outcome) for name, outcome in made.items()}

    def delete_topics(self, topics: Iterable[str]) -> dict[str, Future[None]]:
        return {str(name): _future(outcome) for name, outcome in self._admin.delete_topics(list(topics)).items()}

    def delete_consumer_groups(self, group_ids: Iterable[str]) -> dict[str, Future[None]]:
        return {name: _future(outcome) for name, outcome in self._admin.delete_groups(group_ids).items()}

    def close(self) -> None:
        self._admin.close()


def _future(outcome: object) -> Future[None]:
    future: Future[None] = Future()
    if isinstance(outcome, ApiError):
        future.set_exception(KafkaException(KafkaError(outcome)))
    else:
        future.set_result(None)
    return future


__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "NewTopic",
    "Producer",
    "TopicPartition",
]
