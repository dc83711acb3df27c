"""Hooks around a record: before it is serialized, and when it is acknowledged or has failed.

For tracing, counting and auditing. A hook that fails is logged and left out: records do not suffer for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.client.values import ProducerRecord, RecordMetadata

Record = TypeVar("Record", bound=ProducerRecord[Any, Any])

log = logging.getLogger("ottla.client.producer")


class ProducerInterceptor:
    """What an interceptor may do; each method does nothing by itself."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """The record as it goes on: another one, for example with a header more."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Called on the sender's side, before the callback of the record."""

    def close(self) -> None: ...


class Interceptors:
    """All of a producer's, in their order."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = list(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__}, not a record")
                record = changed
            except Exception:
                log.exception("on_send of %s failed for a record for %s", type(each).__name__, record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        for each in self._interceptors:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:
                log.exception("on_acknowledgement of %s failed", type(each).__name__)

    def close(self) -> None:
        for each in self._interceptors:
            try:
                each.close()
            except Exception:
                log.exception("close of %s failed", type(each).__name__)
