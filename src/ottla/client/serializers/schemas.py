"""Schemas as a registry knows them, and the names of the subjects under which they are registered. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from ottla.client.errors import SettingsError
from ottla.client.serializers.base import Context

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that one uses: the name by which it is used, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    text: str
    kind: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As the body of a request to a registry."""
        made: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            made["schemaType"] = self.kind
        if self.references:
            made["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in self.references
            ]
        return made

    @staticmethod
    def of_json(data: dict[str, Any]) -> Schema:
        references = tuple(
            Reference(each["name"], each["subject"], int(each["version"])) for each in data.get("references") or ()
        )
        return Schema(data["schema"], data.get("schemaType") or "AVRO", references)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema and its id. A registry need not say the rest, and old ones know nothing of GUIDs."""

    schema_id: int
    schema: Schema
    subject: str | None = None
    version: int | None = None
    guid: UUID | None = None


# -- subjects ----------------------------------------------------------------------------------------------------------

# From what the bytes are for, and the full name of the record type, to a subject.
SubjectName = Callable[[Context, str | None], str]


def topic_subject(context: Context, record_name: str | None) -> str:
    """`orders-value`: one schema for a topic."""
    return f"{context.topic}-{context.field_name}"


def record_subject(context: Context, record_name: str | None) -> str:
    """`shop.Order`: a type of record evolves alike in all topics."""
    return _needed(record_name, context)


def topic_record_subject(context: Context, record_name: str | None) -> str:
    """`orders-shop.Order`: several types of records in a topic."""
    return f"{context.topic}-{_needed(record_name, context)}"


def _needed(record_name: str | None, context: Context) -> str:
    if not record_name:
        raise ValueError(f"the schema of the {context.field_name} has no name, which the name of its subject needs")
    return record_name


SUBJECT_NAMES: Final[dict[str, SubjectName]] = {
    "topic": topic_subject,
    "record": record_subject,
    "topic-record": topic_record_subject,
}


def subject_name_of(given: str | SubjectName) -> SubjectName:
    """A strategy by its name, or one of the caller's own."""
    if callable(given):
        return given
    if given not in SUBJECT_NAMES:
        raise SettingsError("subject_name", f"subject_name is one of {', '.join(SUBJECT_NAMES)}, not {given!r}")
    return SUBJECT_NAMES[given]
