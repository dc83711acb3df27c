"""What a serializer is, and how the things that users give become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from ottla.client.errors import SerializationError, SettingsError

Thing = TypeVar("Thing")
Thing_co = TypeVar("Thing_co", covariant=True)
Thing_contra = TypeVar("Thing_contra", contravariant=True)

# What a consumer does with bytes that cannot be read: raise, leave the record out, or what a callable makes of them.
BadRecordPolicy = Literal["raise", "skip"] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Context:
    """For what bytes are made or read. A serializer may add to the headers."""

    topic: str
    is_key: bool
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)

    @property
    def field_name(self) -> str:
        return "key" if self.is_key else "value"


@runtime_checkable
class Serializer(Protocol[Thing_contra]):
    def dumps(self, value: Thing_contra, context: Context) -> bytes | None: ...


@runtime_checkable
class Deserializer(Protocol[Thing_co]):
    def loads(self, data: bytes, context: Context) -> Thing_co: ...


class Serde(Serializer[Thing], Deserializer[Thing], Protocol[Thing]):
    """Both directions."""


class LookupNeededError(Exception):
    """Raised by a serializer on an event loop that has to ask somebody first, which would block the loop.

    `look_up` asks: in a thread, by the client, which then tries again. It returns nothing and raises nothing: the
    serializer remembers what came of it.
    """

    def __init__(self, message: str, look_up: Callable[[], None]) -> None:
        super().__init__(message)
        self.look_up = look_up


Dump = Callable[[Any, Context], bytes | None]
Load = Callable[[bytes, Context], Any]


def serializer_of(given: Any, name: str) -> Dump | None:
    """What turns values into bytes, made of a Serializer or a callable; None where bytes are given as they are."""
    if given is None:
        return None
    if isinstance(given, Serializer):
        return given.dumps
    if callable(given):
        return lambda value, context: given(value)
    raise SettingsError(name, f"{name} is neither a Serializer nor callable: {given!r}")


def deserializer_of(given: Any, name: str) -> Load | None:
    """What turns bytes into values; None where they stay bytes."""
    if given is None:
        return None
    if isinstance(given, Deserializer):
        return given.loads
    if callable(given):
        return lambda data, context: given(data)
    raise SettingsError(name, f"{name} is neither a Deserializer nor callable: {given!r}")


def serialize(dump: Dump, value: Any, context: Context) -> bytes | None:
    """The bytes of a value; SerializationError names what it was for."""
    if value is None:
        return None
    try:
        data = dump(value, context)
    except LookupNeededError:
        raise
    except Exception as error:
        raise SerializationError(
            f"the {context.field_name} of a record for {context.topic} cannot be serialized: {error}"
        ) from error
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise SerializationError(
            f"the serializer of the {context.field_name} of a record for {context.topic} returned "
            f"{type(data).__name__}, not bytes"
        )
    return data if data is None else bytes(data)
