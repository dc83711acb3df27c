"""Hooks around what is read: before records are given out, and when offsets were committed.

For tracing, counting and auditing. A hook that fails is logged and left out: records do not suffer for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.ids import TopicPartition

log = logging.getLogger("ottla.client.consumer")


class ConsumerInterceptor:
    """What an interceptor may do; each method does nothing by itself."""

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Records of one partition as they go on; some may be changed or left out."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed."""

    def close(self) -> None: ...


class Interceptors:
    """All of a consumer's, in their order."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = list(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        for each in self._interceptors:
            try:
                records = each.on_consume(records)
            except Exception:
                log.exception("on_consume of %s failed", type(each).__name__)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception:
                log.exception("on_commit of %s failed", type(each).__name__)

    def close(self) -> None:
        for each in self._interceptors:
            try:
                each.close()
            except Exception:
                log.exception("close of %s failed", type(each).__name__)
