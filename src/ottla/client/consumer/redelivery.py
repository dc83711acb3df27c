"""Handlers that fail: tried again, put into a retry topic, and in the end into a topic of dead letters.

    letters = Redelivery(producer, dead_topic="orders.dead", attempts=3)
    await consumer.process(letters.around(handle))

A record counts as handled when the topic it went to has acknowledged it, so it is in one of the topics or it comes
again. Headers say where it came from and what was wrong. With a retry topic the consumer subscribes to that one as
well: others are handled while a record waits for its next attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.client.producer import blocking, producer
from ottla.client.values import ConsumerRecord

Key = TypeVar("Key")
Value = TypeVar("Value")
AnyProducer = TypeVar("AnyProducer")

# Headers that a record carries to the retry topic and to the dead letters.
ATTEMPT: Final = "ottla.attempt"
ORIGIN: Final = ("ottla.topic", "ottla.partition", "ottla.offset")
ERROR: Final = "ottla.error"

log = logging.getLogger("ottla.client.consumer")


class Letter(NamedTuple):
    """A record that goes to another topic."""

    topic: str
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of a record whose handler failed. Pure."""

    dead_topic: str
    retry_topic: str | None = None
    attempts: int = 3
    pause_s: float = 0.1

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")

    def after(self, record: ConsumerRecord[Any, Any], attempts: int, error: BaseException) -> float | Letter:
        """A pause before another attempt here, longer each time, or where the record goes."""
        if attempts < self.attempts and self.retry_topic is None:
            return self.pause_s * float(2 ** (attempts - 1))
        topic = self.dead_topic if attempts >= self.attempts or self.retry_topic is None else self.retry_topic
        log.warning("%s offset %d goes to %s: %r", record.topic_partition, record.offset, topic, error)
        return Letter(topic, _headers(record, attempts, error))


def attempts_of(record: ConsumerRecord[Any, Any]) -> int:
    """How often the record was tried before it came here."""
    for name, value in record.headers:
        if name == ATTEMPT and value is not None and value.isdigit():
            return int(value)
    return 0


def _headers(record: ConsumerRecord[Any, Any], attempts: int, error: BaseException) -> list[tuple[str, bytes | None]]:
    """The record's own headers, where it was first, how often it was tried, and what was wrong."""
    kept = [(name, value) for name, value in record.headers if name not in (ATTEMPT, ERROR)]
    if not any(name == ORIGIN[0] for name, _ in kept):
        places = (record.topic, record.partition, record.offset)
        kept += [(name, str(place).encode()) for name, place in zip(ORIGIN, places, strict=True)]
    return [*kept, (ATTEMPT, b"%d" % attempts), (ERROR, f"{type(error).__name__}: {error}".encode())]


class _Redelivery(Generic[AnyProducer]):
    """What both kinds have: a producer for letters, and the policy."""

    def __init__(
        self,
        producer: AnyProducer,
        *,
        dead_topic: str,
        retry_topic: str | None = None,
        attempts: int = 3,
        pause_s: float = 0.1,
    ) -> None:
        self._producer = producer
        self._policy = Policy(dead_topic, retry_topic, attempts, pause_s)


class Redelivery(_Redelivery[producer.Producer[Key, Value]], Generic[Key, Value]):
    """For `ottla.aio`. Attempts on the spot are `pause_s`, twice that, … apart; a retry topic is read as it comes."""

    def around(
        self, handler: Callable[[ConsumerRecord[Key, Value]], Any]
    ) -> Callable[[ConsumerRecord[Key, Value]], Awaitable[None]]:
        """A handler that does not fail: it returns when the record is handled, or safe in a topic."""

        async def handle(record: ConsumerRecord[Key, Value]) -> None:
            attempts = attempts_of(record)
            while (failure := await _failure(handler, record)) is not None:
                attempts += 1
                step = self._policy.after(record, attempts, failure)
                if isinstance(step, Letter):
                    await self._producer.send(step.topic, record.value, record.key, headers=step.headers)
                    return
                await asyncio.sleep(step)

        return handle


async def _failure(handler: Callable[..., Any], record: ConsumerRecord[Any, Any]) -> Exception | None:
    try:
        result = handler(record)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return error
    return None


class BlockingRedelivery(_Redelivery[blocking.Producer[Key, Value]], Generic[Key, Value]):
    """The same for `ottla`, with a producer that waits."""

    def around(
        self, handler: Callable[[ConsumerRecord[Key, Value]], Any]
    ) -> Callable[[ConsumerRecord[Key, Value]], None]:
        """A handler that does not fail: it returns when the record is handled, or safe in a topic."""

        def handle(record: ConsumerRecord[Key, Value]) -> None:
            attempts = attempts_of(record)
            while (failure := _failure_now(handler, record)) is not None:
                attempts += 1
                step = self._policy.after(record, attempts, failure)
                if isinstance(step, Letter):
                    self._producer.send(step.topic, record.value, record.key, headers=step.headers).result()
                    return
                time.sleep(step)

        return handle


def _failure_now(handler: Callable[..., Any], record: ConsumerRecord[Any, Any]) -> Exception | None:
    try:
        handler(record)
    except Exception as error:
        return error
    return None
