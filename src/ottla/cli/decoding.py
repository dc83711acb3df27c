"""Keys and values as people read them: bytes as they are, hexadecimal, or JSON by the schemas of a registry."""

from __future__ import annotations

import argparse
import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from ottla.cli.command import CommandError, ExitCode
from ottla.client.off_loop import off_loop
from ottla.client.serializers.base import Context, LookupNeededError
from ottla.client.serializers.extras import extra
from ottla.errors import ConfigError
from ottla.ids import TopicPartition
from ottla.records.layout import Columns

REGISTRY_VARIABLE: Final = "OTTLA_SCHEMA_REGISTRY"
AS_THEY_ARE: Final = "bytes"
HEXADECIMAL: Final = "hex"
REGISTERED: Final = ("avro", "protobuf", "json-schema")
FORMATS: Final = (AS_THEY_ARE, HEXADECIMAL, *REGISTERED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for noun in ("key", "value"):
        parser.add_argument(
            f"--{noun}-format",
            choices=FORMATS,
            default=AS_THEY_ARE,
            help=f"how to show a {noun}: as it is, in hexadecimal, or as JSON by the schema that it names"
            f" (default: {AS_THEY_ARE})",
        )
    parser.add_argument(
        "--registry",
        metavar="URL",
        default=os.environ.get(REGISTRY_VARIABLE),
        help="the schema registry, such as http://127.0.0.1:8081, or https://user:password@host"
        f" (default: ${REGISTRY_VARIABLE})",
    )


@dataclass(frozen=True, slots=True)
class _Decoder:
    """From bytes to a value, and from that to its text."""

    loads: Callable[[bytes, Context], Any]
    text: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Decoding:
    """What is done with the keys and the values of a batch before they are written."""

    key: _Decoder | None
    value: _Decoder | None

    async def columns(self, partition: TopicPartition, columns: Columns) -> Columns:
        """The same records, with texts in place of what was decoded."""
        if self.key is not None:
            columns = columns._replace(keys=await _decode(self.key, True, partition, columns, columns.keys))
        if self.value is not None:
            columns = columns._replace(values=await _decode(self.value, False, partition, columns, columns.values))
        return columns


def decoding_of(options: argparse.Namespace) -> Decoding:
    """What `--key-format`, `--value-format` and `--registry` ask for."""
    return Decoding(_decoder(options.key_format, options.registry), _decoder(options.value_format, options.registry))


def is_json(name: str) -> bool:
    """Whether a format writes JSON."""
    return name in REGISTERED


def _decoder(name: str, url: str | None) -> _Decoder | None:
    if name == AS_THEY_ARE:
        return None
    if name == HEXADECIMAL:
        return _Decoder(lambda data, context: data.hex(), str.encode)
    if url is None:
        raise CommandError(
            ExitCode.USAGE, f"{name} needs a schema registry", f"name it with --registry or ${REGISTRY_VARIABLE}"
        )
    # Imported here: most commands need no registry, and not everybody has installed what reads schemas.
    from ottla.client.serializers import AvroSerde, JsonSchemaSerde, ProtobufSerde, SchemaRegistry

    registry = SchemaRegistry(url)
    match name:
        case "avro":
            return _Decoder(AvroSerde(registry).loads, _json_text)
        case "protobuf":
            return _Decoder(ProtobufSerde(registry).loads, _message_text)
        case _:
            return _Decoder(JsonSchemaSerde(registry).loads, _json_text)


async def _decode(
    decoder: _Decoder, is_key: bool, partition: TopicPartition, columns: Columns, data: Sequence[bytes | None]
) -> list[bytes | None]:
    decoded: list[bytes | None] = []
    for offset, headers, each in zip(columns.offsets, columns.headers, data, strict=True):
        if each is None:
            decoded.append(None)
            continue
        context = Context(partition.topic, is_key, list(headers))
        try:
            decoded.append(decoder.text(await _loads(decoder, each, context)))
        except ConfigError:  # something is not installed
            raise
        except Exception as error:
            raise _undecodable(context, partition, offset, error) from error
    return decoded


async def _loads(decoder: _Decoder, data: bytes, context: Context) -> Any:
    while True:
        try:
            return decoder.loads(data, context)
        except LookupNeededError as needed:
            await off_loop(needed.look_up)


def _undecodable(context: Context, partition: TopicPartition, offset: int, error: Exception) -> CommandError:
    from ottla.client.serializers import RegistryUnavailableError

    if isinstance(error, RegistryUnavailableError):
        return CommandError(ExitCode.UNREACHABLE, str(error), "name another registry with --registry")
    return CommandError(
        ExitCode.DAMAGED,
        f"the {context.field_name} of {partition} at offset {offset} cannot be decoded: {error}",
        f"look at it with --{context.field_name}-format {HEXADECIMAL}",
    )


def _message_text(message: Any) -> bytes:
    as_dict = extra("google.protobuf.json_format").MessageToDict
    return _json_text(as_dict(message, preserving_proto_field_name=True))


def _json_text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """What JSON has no type for, as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | Decimal() | UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no text of its own")
