"""JSON, and dataclasses as JSON objects."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ottla.client.serializers.base import Context

Thing = TypeVar("Thing")


class JsonValues:
    """Anything that `json` can write, as compact UTF-8."""

    def dumps(self, value: Any, context: Context) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def loads(self, data: bytes, context: Context) -> Any:
        return json.loads(data)


json_values: Final = JsonValues()


def dataclass_values(kind: type[Thing]) -> DataclassValues[Thing]:
    """Instances of a dataclass as JSON objects; nested ones, lists, tuples, dicts and optional ones included."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    return DataclassValues(kind)


@dataclass(frozen=True, slots=True)
class DataclassValues(Generic[Thing]):
    kind: type[Thing]

    def dumps(self, value: Thing, context: Context) -> bytes:
        if not isinstance(value, self.kind):
            raise TypeError(f"a {self.kind.__name__} is wanted, not {type(value).__name__}")
        return json_values.dumps(dataclasses.asdict(value), context)  # type: ignore[call-overload]

    def loads(self, data: bytes, context: Context) -> Thing:
        return typing.cast(Thing, _restored(json.loads(data), self.kind))


@functools.cache
def _types_of(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _restored(data: Any, kind: Any) -> Any:
    """What JSON made of a value, as that value again."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, dict):
            raise TypeError(f"an object is wanted for {kind.__name__}, not {type(data).__name__}")
        types = _types_of(kind)
        if unknown := sorted(data.keys() - types.keys()):
            raise TypeError(f"{kind.__name__} has no field {', '.join(unknown)}")
        return kind(**{name: _restored(value, types[name]) for name, value in data.items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple, set, frozenset) and isinstance(data, list):
        return _restored_items(data, origin, arguments)
    if origin is dict and isinstance(data, dict) and len(arguments) == 2:
        return {name: _restored(value, arguments[1]) for name, value in data.items()}
    if type(None) in arguments:
        others = [each for each in arguments if each is not type(None)]
        return None if data is None or len(others) != 1 else _restored(data, others[0])
    return data


def _restored_items(data: list[Any], origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return tuple(_restored(value, kind) for value, kind in zip(data, arguments, strict=True))
    kind = arguments[0] if arguments else Any
    return origin(_restored(value, kind) for value in data)
