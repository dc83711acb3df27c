"""From what a caller gives to a record that can be put into a batch: intercepted, serialized, checked, measured.

Whatever is wrong with a record is an error of the call that sends it, and the producer goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.client.arguments import INT64_MAX, is_whole
from ottla.client.error_codes import MessageTooLargeError
from ottla.client.errors import SerializationError
from ottla.client.partitioning import HEADER_OVERHEAD_BYTES
from ottla.client.producer.deliveries import Callback
from ottla.client.producer.interceptors import Interceptors
from ottla.client.serializers.base import Context, LookupNeededError, serialize, serializer_of
from ottla.client.settings import ProducerSettings
from ottla.client.values import HeadersLike, ProducerRecord, RecordHeaders
from ottla.records.layout import INT32_MAX, RECORD_OVERHEAD_BYTES
from ottla.runtime.clock import SystemClock


class PreparedRecord(NamedTuple):
    """A record as bytes, checked, with its size."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: RecordHeaders
    size_bytes: int
    callback: Callback | None


class UnpreparedRecord(NamedTuple):
    """A record whose serializer has to look something up first: intercepted, but not yet bytes."""

    record: ProducerRecord[Any, Any]
    callback: Callback | None


class RecordNotReadyError(Exception):
    """A record cannot be prepared before `look_up` was called, in a thread."""

    def __init__(self, unprepared: UnpreparedRecord, cause: LookupNeededError) -> None:
        super().__init__(str(cause))
        self.unprepared, self.look_up = unprepared, cause.look_up


class Preparation:
    """Of the records of one producer. Any thread may use it."""

    def __init__(self, settings: ProducerSettings, interceptors: Interceptors) -> None:
        self._interceptors = interceptors
        self._dump_key = serializer_of(settings.key_serializer, "key_serializer")
        self._dump_value = serializer_of(settings.value_serializer, "value_serializer")
        self._request_bytes_max = settings.max_request_size
        self._memory_bytes = settings.buffer_memory
        self._clock = SystemClock()

    @property
    def is_needless(self) -> bool:
        """Whether keys and values that are bytes go as they are."""
        return not self._interceptors and self._dump_key is None and self._dump_value is None

    def prepared(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: HeadersLike | None,
        callback: Callback | None,
        is_intercepted: bool = False,
    ) -> PreparedRecord:
        """The record as bytes: intercepted, serialized and checked. RecordNotReadyError: look something up first."""
        pairs = as_pairs(headers) if headers else ()
        if self._interceptors and not is_intercepted:
            callback = self._acknowledging(callback)
            record = self._interceptors.on_send(ProducerRecord(topic, value, key, partition, timestamp, pairs))
            topic, value, key = record.topic, record.value, record.key
            partition, timestamp, pairs = record.partition, record.timestamp, record.headers
        if timestamp is None:
            timestamp = self._clock.now_ms()
        elif not is_whole(timestamp, INT64_MAX):
            raise ValueError(f"a timestamp counts milliseconds since 1970 and cannot be {timestamp!r}")
        if partition is not None and not is_whole(partition, INT32_MAX):
            raise ValueError(f"partitions are counted from 0: there is no partition {partition!r}")
        if self._dump_key is not None or self._dump_value is not None:
            added = list(pairs)
            given_key, given_value = key, value
            try:
                if self._dump_key is not None:
                    key = serialize(self._dump_key, key, Context(topic, True, added))
                if self._dump_value is not None:
                    value = serialize(self._dump_value, value, Context(topic, False, added))
            except LookupNeededError as needed:
                given = ProducerRecord(topic, given_value, given_key, partition, timestamp, pairs)
                raise RecordNotReadyError(UnpreparedRecord(given, callback), needed) from needed
            pairs = tuple(added)
        if type(key) is not bytes and key is not None:
            key = _as_bytes(key, topic, "key")
        if type(value) is not bytes and value is not None:
            value = _as_bytes(value, topic, "value")
        size = RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
        if pairs:
            size += sum(4 * len(name) + len(data or b"") + HEADER_OVERHEAD_BYTES for name, data in pairs)
        if size > self._request_bytes_max or size > self._memory_bytes:
            raise MessageTooLargeError(
                f"a record of {size} bytes for {topic}: max_request_size is {self._request_bytes_max} and "
                f"buffer_memory {self._memory_bytes}"
            )
        return PreparedRecord(topic, partition, key, value, timestamp, pairs, size, callback)

    def prepared_again(self, unprepared: UnpreparedRecord) -> PreparedRecord:
        """The same for a record that was not ready; interceptors have seen it."""
        record, callback = unprepared
        return self.prepared(
            record.topic,
            record.value,
            record.key,
            record.partition,
            record.timestamp,
            record.headers,
            callback,
            is_intercepted=True,
        )

    def _acknowledging(self, callback: Callback | None) -> Callback:
        def acknowledged(metadata: Any, error: BaseException | None) -> None:
            self._interceptors.on_acknowledgement(metadata, error)
            if callback is not None:
                callback(metadata, error)

        return acknowledged


def as_pairs(headers: HeadersLike) -> RecordHeaders:
    """Headers as a record has them; TypeError for anything else."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        found = tuple((name, data) for name, data in pairs)
    except (TypeError, ValueError):
        raise TypeError(f"headers are pairs of a name and bytes, [('trace', b'1')], not {headers!r}") from None
    for name, data in found:
        if not isinstance(name, str) or not (data is None or isinstance(data, bytes)):
            raise TypeError(f"a header is a name and bytes or None, not {name!r} and {type(data).__name__}")
    return found


def _as_bytes(data: Any, topic: str, what: str) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the {what} of a record for {topic} is {type(data).__name__}, not bytes: encode it, or give the producer a "
        f"{what}_serializer"
    )
