"""The words in which messages are written: `@message`, `@struct` and `wire`.

A message is a slotted class whose fields stand in wire order. A bare annotation is a field of every
version; `wire(...)` says what differs: the versions that have it, its tag, where null is allowed, its
default.

    @message(key=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest:
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = wire(since=3, default=None)

Field order and version ranges appear nowhere else: codec, API table, documentation and tests read them from
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

from ottla.protocol.wire import Primitive

Cls = TypeVar("Cls", bound=type)


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


EVERY_VERSION: Final = Versions(0, 32767)
NO_VERSION: Final = Versions(0, -1)


class _Required:
    """Stands for a default where there is none: every version has the field, and callers must give it."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: what stands on the wire, and in which versions."""

    name: str
    wire_type: Primitive | type
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    compact: bool
    writes_null: bool
    default: Any

    @property
    def struct(self) -> type | None:
        """The class of the element or of the field itself, if it is a struct."""
        return None if isinstance(self.wire_type, Primitive) else self.wire_type


@dataclass(frozen=True, slots=True)
class StructSchema:
    """The fields of a struct, in wire order."""

    name: str
    fields: tuple[Field, ...]

    def untagged(self, version: int) -> list[Field]:
        return [field for field in self.fields if version in field.versions and field.tag is None]

    def tagged(self, version: int) -> list[Field]:
        """The tagged fields of a version, by rising tag, which is the order on the wire."""
        fields = [field for field in self.fields if version in field.versions and field.tag is not None]
        return sorted(fields, key=lambda field: field.tag or 0)

    def absent(self, version: int) -> list[Field]:
        return [field for field in self.fields if version not in field.versions]


@dataclass(frozen=True, slots=True)
class MessageSchema(StructSchema):
    """A struct that stands alone: a request, a response, a header or a stored record."""

    versions: Versions
    flexible_since: int | None
    key: int | None
    listeners: tuple[str, ...]
    advertised: Versions | None
    record_type: int | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


@dataclass(frozen=True, slots=True)
class _Wire:
    """The arguments of `wire`, until the decorator of the class makes a `Field` of them."""

    default: Any = REQUIRED
    factory: Callable[[], Any] | None = None
    versions: Versions = EVERY_VERSION
    nullable: Versions = EVERY_VERSION
    tag: int | None = None
    ignorable: bool = False
    compact: bool = True
    writes_null: bool = False


def wire(
    *,
    default: Any = REQUIRED,
    factory: Callable[[], Any] | None = None,
    since: int = EVERY_VERSION.first,
    until: int = EVERY_VERSION.last,
    nullable: bool = True,
    nullable_since: int = EVERY_VERSION.first,
    nullable_until: int = EVERY_VERSION.last,
    tag: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    writes_null: bool = False,
) -> Any:
    """A field that is not the same in every version.

    `since` and `until` bound the versions that have it; elsewhere decoders leave the default, and encoders
    refuse any other value unless it is `ignorable`. `X | None` is null on the wire wherever the field is, or
    from `nullable_since` to `nullable_until`; `nullable=False` on a tagged struct says that None only stands
    for the tag left out. A tagged field at its default is not written; `writes_null` says that None is, where
    Kafka takes a tag that is left out for something else. `compact=False` keeps the old length prefix in
    flexible versions.
    """
    return _Wire(
        default=default,
        factory=factory,
        versions=Versions(since, until),
        nullable=Versions(nullable_since, nullable_until) if nullable else NO_VERSION,
        tag=tag,
        ignorable=ignorable,
        compact=compact,
        writes_null=writes_null,
    )


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(wire,))
def struct(cls: Cls) -> Cls:
    """A group of fields inside a message."""
    made, fields = _make_class(cls)
    made.__schema__ = StructSchema(cls.__name__, fields)
    return cast("Cls", made)


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(wire,))
def message(
    *,
    versions: tuple[int, int],
    flexible: int | None = None,
    key: int | None = None,
    listeners: tuple[str, ...] = (),
    advertised: tuple[int, int] | None = None,
    record_type: int | None = None,
) -> Callable[[Cls], Cls]:
    """A message: the `versions` that we read and write, and the first `flexible` one.

    Requests and responses have the `key` of their API; a request also the `listeners` that take it.
    `advertised` are the versions that a broker of Kafka 4.3 announces: all that we have, unless said
    otherwise, of what a broker's listener takes. The key and the value of a coordinator's record have its
    `record_type`.
    """

    def decorate(cls: Cls) -> Cls:
        made, fields = _make_class(cls)
        made.__schema__ = MessageSchema(
            name=cls.__name__,
            fields=fields,
            versions=Versions(*versions),
            flexible_since=flexible,
            key=key,
            listeners=listeners,
            advertised=_advertised(versions, advertised, listeners),
            record_type=record_type,
        )
        return cast("Cls", made)

    return decorate


def schema_of(cls: type) -> StructSchema:
    """The schema of a class made by `struct` or `message`."""
    schema = getattr(cls, "__schema__", None)
    assert isinstance(schema, StructSchema), f"{cls.__name__} is not a message"
    return schema


def message_schema_of(cls: type) -> MessageSchema:
    """The schema of a class made by `message`."""
    schema = schema_of(cls)
    assert isinstance(schema, MessageSchema), f"{cls.__name__} is a part of a message, not one itself"
    return schema


def messages_in(namespace: dict[str, Any]) -> list[type]:
    """The message classes of a module, given its `vars()`, in the order in which they are written."""
    return [
        value
        for value in namespace.values()
        if isinstance(value, type) and isinstance(getattr(value, "__schema__", None), MessageSchema)
    ]


def _advertised(
    versions: tuple[int, int], advertised: tuple[int, int] | None, listeners: tuple[str, ...]
) -> Versions | None:
    return Versions(*(advertised or versions)) if "broker" in listeners else None


def _make_class(cls: type) -> tuple[Any, tuple[Field, ...]]:
    """The slotted class of a declaration, and its fields.

    Hundreds of classes are made when the messages are imported, and a program uses a few of them. `dataclass` would
    compile a constructor for each at once, most of the time that the import takes; here it is compiled when the class
    is first constructed (see `_construct_first`). One `__eq__` and one `__repr__` that read the schema serve all.
    """
    fields = []
    for name, annotation in cls.__annotations__.items():
        declared = getattr(cls, name, None)
        fields.append(_field(name, annotation, declared if isinstance(declared, _Wire) else _Wire()))
    names = tuple(field.name for field in fields)
    namespace = {name: value for name, value in vars(cls).items() if name not in (*names, "__dict__", "__weakref__")}
    namespace.update(
        __slots__=names, __init__=_construct_first, __eq__=_equal, __repr__=_represent, __hash__=None, __match_args__=()
    )
    return type(cls.__name__, (), namespace), tuple(fields)


def _construct_first(self: object, **values: Any) -> None:
    """Stands for the constructor of a class until it is first called; compiles the real one and puts it in place."""
    cls = type(self)
    parameters, body = [], []
    names: dict[str, Any] = {"ABSENT": REQUIRED}
    for field in schema_of(cls).fields:
        if field.default is REQUIRED:
            parameters.append(field.name)
            body.append(f"    self.{field.name} = {field.name}")
        elif isinstance(field.default, list):
            parameters.append(f"{field.name}=ABSENT")  # a list of its own for every message
            body.append(f"    self.{field.name} = [] if {field.name} is ABSENT else {field.name}")
        else:
            names[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
            body.append(f"    self.{field.name} = {field.name}")
    signature = ", ".join(["self", "*", *parameters]) if parameters else "self"
    source = "\n".join([f"def __init__({signature}):", *(body or ["    pass"])])
    exec(compile(source, f"<{cls.__name__}>", "exec"), names)
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]
    cls.__init__(self, **values)


def _field(name: str, annotation: Any, spec: _Wire) -> Field:
    annotation, is_optional = _strip_none(annotation)
    is_array = get_origin(annotation) is list
    if is_array:
        (annotation,) = get_args(annotation)
    return Field(
        name=name,
        wire_type=_wire_type(annotation),
        is_array=is_array,
        versions=spec.versions,
        nullable=spec.nullable if is_optional else NO_VERSION,
        tag=spec.tag,
        ignorable=spec.ignorable,
        compact=spec.compact,
        writes_null=spec.writes_null,
        default=spec.factory() if spec.factory is not None else spec.default,
    )


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    inner = [part for part in get_args(annotation) if part is not NoneType]
    assert len(inner) == 1, f"a field is one type or None, not {annotation}"
    return inner[0], True


def _wire_type(annotation: Any) -> Primitive | type:
    for marker in getattr(annotation, "__metadata__", ()):
        if isinstance(marker, Primitive):
            return marker
    assert hasattr(annotation, "__schema__"), f"{annotation} has no place on the wire"
    return cast("type", annotation)


def _equal(self: object, other: object) -> bool:
    if type(self) is not type(other):
        return False
    return all(getattr(self, field.name) == getattr(other, field.name) for field in schema_of(type(self)).fields)


def _represent(self: object) -> str:
    """The constructor call that makes an equal message; fields at their default are left out."""
    parts = []
    for field in schema_of(type(self)).fields:
        value = getattr(self, field.name)
        if field.default is REQUIRED or value != field.default:
            parts.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(parts)})"
