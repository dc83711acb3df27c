"""What serializers with a schema registry have in common: which schema, under which id, and where the id goes.

A subclass knows one kind of schema: how to make an encoder and a decoder of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Literal, NamedTuple, TypedDict, TypeVar

from ottla.client.errors import SettingsError
from ottla.client.serializers.base import Context
from ottla.client.serializers.registry import SchemaRegistry
from ottla.client.serializers.schemas import RegisteredSchema, Schema, SubjectName, subject_name_of
from ottla.client.serializers.wire_format import Framed, header_name, header_of, prefix_of, unframed

Thing = TypeVar("Thing")

# Which id is written: of the given schema, registered if need be; of the given schema, which must be registered; of
# the subject's latest version, in which values are then written; or this one.
IdPolicy = Literal["register", "registered", "latest"] | int
IdPlace = Literal["prefix", "header"]


class SerdeSettings(TypedDict, total=False):
    """Keywords that all of these serializers take; `RegisteredSerde` has their defaults."""

    id_policy: IdPolicy
    id_place: IdPlace
    subject_name: str | SubjectName
    normalize: bool


CODECS_MAX: Final = 1000  # encoders and decoders that are kept

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


class _Writer(NamedTuple):
    prefix: bytes
    header: tuple[str, bytes] | None
    encode: Encode


class RegisteredSerde(ABC, Generic[Thing]):
    """A `Serde` whose bytes name their schema."""

    has_indexes = False

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        id_policy: IdPolicy = "register",
        id_place: IdPlace = "prefix",
        subject_name: str | SubjectName = "topic",
        normalize: bool = False,
    ) -> None:
        if id_policy not in ("register", "registered", "latest") and not isinstance(id_policy, int):
            raise SettingsError("id_policy", f"id_policy is register, registered, latest or an id, not {id_policy!r}")
        if id_place not in ("prefix", "header"):
            raise SettingsError("id_place", f"id_place is prefix or header, not {id_place!r}")
        self.registry = registry
        self._id_policy = id_policy
        self._id_place = id_place
        self._subject_name = subject_name_of(subject_name)
        self._normalize = normalize
        self._writers: OrderedDict[Hashable, _Writer] = OrderedDict()
        self._decoders: OrderedDict[Hashable, Decode] = OrderedDict()

    # -- of each kind --------------------------------------------------------------------------------------------------

    @abstractmethod
    def _own_schema(self, value: Any) -> Schema:
        """The schema to write a value with, where the registry does not decide."""

    @abstractmethod
    def _record_name(self, value: Any) -> str | None:
        """The full name of the type of a value, for the names of subjects."""

    @abstractmethod
    def _encoder(self, schema: Schema, value: Any) -> Encode: ...

    @abstractmethod
    def _decoder(self, framed: Framed) -> Decode: ...

    def _indexes(self, value: Any) -> tuple[int, ...] | None:
        """Protobuf's path to the message type."""
        return None

    def _writer_key(self, value: Any) -> Hashable:
        """What else than the schema an encoder depends on."""
        return None

    # -- both directions -----------------------------------------------------------------------------------------------

    def dumps(self, value: Thing, context: Context) -> bytes:
        writer = self._writer(value, context)
        body = writer.encode(value)
        if writer.header is not None:
            context.headers.append(writer.header)
        return writer.prefix + body

    def loads(self, data: bytes, context: Context) -> Thing:
        framed = unframed(data, context.headers, is_key=context.is_key, has_indexes=self.has_indexes)
        key = (framed.schema, framed.indexes)
        decode = self._decoders.get(key)
        if decode is None:
            decode = _kept(self._decoders, key, self._decoder(framed))
        decoded: Thing = decode(framed.body)
        return decoded

    def _writer(self, value: Any, context: Context) -> _Writer:
        subject = self._subject_name(context, self._record_name(value))
        found = self._registered(subject, value)
        key = (found.schema_id, context.is_key, self._writer_key(value))
        writer = self._writers.get(key)
        return writer or _kept(self._writers, key, self._make_writer(found, subject, value, context))

    def _registered(self, subject: str, value: Any) -> RegisteredSchema:
        """The schema that a value is written with; the registry client remembers it."""
        if self._id_policy == "register":
            return self.registry.register(subject, self._own_schema(value), normalize=self._normalize)
        if self._id_policy == "registered":
            return self.registry.registered(subject, self._own_schema(value), normalize=self._normalize)
        if self._id_policy == "latest":
            return self.registry.latest(subject)
        return RegisteredSchema(self._id_policy, self.registry.schema(self._id_policy), subject)

    def _make_writer(self, found: RegisteredSchema, subject: str, value: Any, context: Context) -> _Writer:
        encode, indexes = self._encoder(found.schema, value), self._indexes(value)
        if self._id_place == "prefix":
            return _Writer(prefix_of(found.schema_id, indexes), None, encode)
        # Registries that know GUIDs say them when a schema is looked up, not always when it is registered.
        guid = found.guid or self.registry.registered(subject, found.schema, normalize=self._normalize).guid
        if guid is None:
            raise ValueError("the schema registry gives no GUIDs, which headers need: use id_place='prefix'")
        return _Writer(b"", (header_name(context.is_key), header_of(guid, indexes)), encode)


Kept = TypeVar("Kept")


def _kept(made: OrderedDict[Hashable, Kept], key: Hashable, value: Kept) -> Kept:
    made[key] = value
    while len(made) > CODECS_MAX:
        made.popitem(last=False)
    return value
