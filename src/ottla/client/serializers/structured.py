"""JSON, and dataclasses as JSON objects."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from ottla.client.serializers.base import Context

Thing = TypeVar("Thing")


class JsonValues:
    """Anything that `json` can write, as compact UTF-8."""

    def dumps(self, value: Any, context: Context) -> bytes:
        return json_text(value)

    def loads(self, data: bytes, context: Context) -> Any:
        return json.loads(data)


def json_text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


json_values: Final = JsonValues()


def dataclass_values(kind: type[Thing]) -> DataclassValues[Thing]:
    """Instances of a dataclass as JSON objects. Its fields may be dataclasses, lists, tuples, sets, dicts, unions,
    enums, UUIDs, decimals, dates, times and bytes, which become text (bytes as base64)."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    return DataclassValues(kind)


@dataclass(frozen=True, slots=True)
class DataclassValues(Generic[Thing]):
    kind: type[Thing]

    def dumps(self, value: Thing, context: Context) -> bytes:
        if not isinstance(value, self.kind):
            raise TypeError(f"a {self.kind.__name__} is wanted, not {type(value).__name__}")
        return json_text(as_plain(value))

    def loads(self, data: bytes, context: Context) -> Thing:
        return typing.cast(Thing, restored(json.loads(data), self.kind))


# -- there -------------------------------------------------------------------------------------------------------------

_PLAIN: Final = (str, int, float, bool, type(None))


def as_plain(value: Any) -> Any:
    """A value as what JSON has: objects, lists, text, numbers."""
    if isinstance(value, Enum):
        return as_plain(value.value)
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_as_name(name): as_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value  # json says what it thinks of it


def _as_name(key: Any) -> str:
    """The key of a dict as JSON writes it; `json` itself would make texts of some that cannot be read back."""
    plain = as_plain(key)
    if not isinstance(plain, str | int):
        raise TypeError(f"a {type(key).__name__} cannot be a key of a JSON object")
    return plain if isinstance(plain, str) else json.dumps(plain)


# -- and back ----------------------------------------------------------------------------------------------------------

# From what JSON has, or from the value itself: Avro has some of these types.
_FROM_TEXT: Final[dict[Any, Callable[[Any], Any]]] = {
    UUID: UUID,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    bytes: functools.partial(base64.b64decode, validate=True),
}


@functools.cache
def _types_of(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def restored(data: Any, kind: Any) -> Any:
    """What JSON made of a value, as that value again."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return restored(data, arguments[0])
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _restored_object(data, kind)
    if origin in (typing.Union, types.UnionType):
        return _restored_choice(data, arguments)
    if origin in (list, tuple, set, frozenset) and isinstance(data, list):
        return _restored_items(data, origin, arguments)
    if origin is dict and isinstance(data, dict) and len(arguments) == 2:
        return {_restored_name(name, arguments[0]): restored(value, arguments[1]) for name, value in data.items()}
    if isinstance(kind, type) and isinstance(data, kind):
        return data
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind in _FROM_TEXT and isinstance(data, str):
        return _FROM_TEXT[kind](data)
    if kind is timedelta and isinstance(data, int | float):
        return timedelta(seconds=data)
    if kind is float and type(data) is int:
        return float(data)
    return data


def _restored_object(data: Any, kind: type) -> Any:
    if isinstance(data, kind):
        return data
    if not isinstance(data, dict):
        raise TypeError(f"an object is wanted for {kind.__name__}, not {type(data).__name__}")
    fields = _types_of(kind)
    if unknown := sorted(data.keys() - fields.keys()):
        raise TypeError(f"{kind.__name__} has no field {', '.join(unknown)}")
    return kind(**{name: restored(value, fields[name]) for name, value in data.items()})


def _restored_choice(data: Any, kinds: tuple[Any, ...]) -> Any:
    """The first kind of a union that the data fits."""
    if data is None and type(None) in kinds:
        return None
    problems: list[str] = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            value = restored(data, kind)
        except (TypeError, ValueError, ArithmeticError) as error:
            problems.append(str(error))
            continue
        origin = typing.get_origin(kind) or kind
        if not isinstance(origin, type) or isinstance(value, origin):
            return value
    raise TypeError(
        f"{type(data).__name__} fits none of {', '.join(map(str, kinds))}" + "".join(f"; {each}" for each in problems)
    )


def _restored_name(name: str, kind: Any) -> Any:
    return restored(json.loads(name) if kind in (int, bool) else name, kind)


def _restored_items(data: list[Any], origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return tuple(restored(value, kind) for value, kind in zip(data, arguments, strict=True))
    kind = arguments[0] if arguments else Any
    return origin(restored(value, kind) for value in data)
