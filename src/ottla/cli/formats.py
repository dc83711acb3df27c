"""Records as bytes of a stream: lines in, a format or JSON out. Pure, and column by column for speed."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from ottla.cli.command import CommandError, ExitCode
from ottla.cli.render import Json, bytes_json, json_line
from ottla.client.partitioning import Headers, RecordColumns
from ottla.ids import TopicPartition
from ottla.records.layout import Columns, RecordHeaders

# -- out ---------------------------------------------------------------------------------------------------------------

Column = Iterable[object]
RenderBatch = Callable[[TopicPartition, Columns], bytes]

_FIELDS: Final[dict[str, tuple[bytes, str]]] = {
    "v": (b"%b", "value"),
    "s": (b"%b", "value (as in kcat)"),
    "k": (b"%b", "key"),
    "t": (b"%b", "topic"),
    "p": (b"%d", "partition"),
    "o": (b"%d", "offset"),
    "T": (b"%d", "timestamp in milliseconds since 1970"),
    "h": (b"%b", "headers as name=value,…"),
    "S": (b"%d", "bytes of the value or -1"),
    "K": (b"%d", "bytes of the key or -1"),
}
FORMAT_HELP: Final = ", ".join(f"%%{letter} {meaning}" for letter, (_, meaning) in _FIELDS.items())

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKENS: Final = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.DOTALL)


def compile_format(text: str, null: bytes) -> RenderBatch:
    """What turns a batch into bytes; `null` is written for a key or value that is not there."""
    template = bytearray()
    letters: list[str] = []
    for field, hexadecimal, escape, plain in (match.groups() for match in _TOKENS.finditer(text)):
        if plain is not None:
            template += plain.encode("utf-8", "surrogateescape")
        elif hexadecimal is not None:
            template += _literal(bytes.fromhex(hexadecimal))
        elif escape is not None:
            if escape not in _ESCAPES:
                raise _bad_format(
                    text, f"\\{escape} is not an escape sequence", "\\n, \\r, \\t, \\0, \\\\ and \\xNN are"
                )
            template += _ESCAPES[escape]
        elif field == "%":
            template += b"%%"
        elif field in _FIELDS:
            template += _FIELDS[field][0]
            letters.append(field)
        else:
            known = " ".join(f"%{letter}" for letter in _FIELDS)
            raise _bad_format(text, f"%{field} is not a field", f"{known} are; %% is a percent sign")
    pattern = bytes(template)
    if not letters:
        constant = pattern % ()
        return lambda partition, columns: constant * len(columns.values)

    def render(partition: TopicPartition, columns: Columns) -> bytes:
        chosen = [_column(letter, partition, columns, null) for letter in letters]
        return b"".join([pattern % row for row in zip(*chosen, strict=False)])

    return _render_values(null) if text == "%v\\n" else render


def _literal(data: bytes) -> bytes:
    return data.replace(b"%", b"%%")


def _bad_format(text: str, problem: str, hint: str) -> CommandError:
    return CommandError(ExitCode.USAGE, f"bad format {text!r}: {problem}", hint)


def _render_values(null: bytes) -> RenderBatch:
    """A value a line: what is asked for most, in one call."""

    def render(partition: TopicPartition, columns: Columns) -> bytes:
        return b"\n".join([*_without_nulls(columns.values, null), b""])

    return render


def _column(letter: str, partition: TopicPartition, columns: Columns, null: bytes) -> Column:
    match letter:
        case "v" | "s":
            return _without_nulls(columns.values, null)
        case "k":
            return _without_nulls(columns.keys, null)
        case "t":
            # The first column that ends decides how many rows there are, and a constant has no end.
            return _constant(partition.topic.encode(), columns)
        case "p":
            return _constant(partition.partition, columns)
        case "o":
            return columns.offsets
        case "T":
            return columns.timestamps
        case "h":
            return [_headers_text(headers, null) for headers in columns.headers]
        case "S":
            return [-1 if value is None else len(value) for value in columns.values]
        case _:
            return [-1 if key is None else len(key) for key in columns.keys]


def _constant(value: object, columns: Columns) -> Column:
    return repeat(value, len(columns.values))


def _without_nulls(column: Sequence[bytes | None], null: bytes) -> list[bytes]:
    return [null if data is None else data for data in column]


def _headers_text(headers: RecordHeaders, null: bytes) -> bytes:
    return b",".join(
        b"%b=%b" % (name.encode("utf-8", "surrogateescape"), null if value is None else value)
        for name, value in headers
    )


def render_json(partition: TopicPartition, columns: Columns) -> bytes:
    """A JSON document a line, with everything that a record has."""
    lines = [
        json_line(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "timestamp": timestamp,
                "key": bytes_json(key),
                "value": bytes_json(value),
                "headers": [[name, bytes_json(content)] for name, content in headers],
            }
        )
        for offset, timestamp, key, value, headers in zip(*columns, strict=True)
    ]
    return "".join(f"{line}\n" for line in lines).encode()


# -- in ----------------------------------------------------------------------------------------------------------------


class BadLineError(Exception):
    """A line that is no record; those before it are sound. `index` counts from 0 in the lines that were given."""

    def __init__(self, index: int, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.index = index
        self.hint = hint


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: Headers = ()

    def parse(self, lines: Sequence[bytes], now_ms: int) -> RecordColumns:
        keys: list[bytes | None] | None = None
        values: list[bytes | None] = list(lines)
        if self.key_separator is not None:
            keys, values = self._split(lines, self.key_separator)
        if self.null_marker is not None:
            values = [None if value == self.null_marker else value for value in values]
            keys = keys and [None if key == self.null_marker else key for key in keys]
        headers = [self.headers] * len(values) if self.headers else None
        return RecordColumns(values, now_ms, keys, headers)

    @staticmethod
    def _split(lines: Sequence[bytes], separator: bytes) -> tuple[list[bytes | None], list[bytes | None]]:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for index, line in enumerate(lines):
            key, found, value = line.partition(separator)
            if not found:
                raise BadLineError(
                    index,
                    f"it does not contain the key separator {separator!r}",
                    "write the key, the separator and the value",
                )
            keys.append(key)
            values.append(value)
        return keys, values


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """A line of `--json-lines`: what `ottla consume --json` writes is understood."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    partition: int | None


def parse_json_line(index: int, line: bytes) -> JsonRecord:
    hint = 'write {"key": "k", "value": "v", "headers": [["name", "value"]]}, bytes as {"base64": "…"}'
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        return JsonRecord(
            key=_bytes_of(fields.get("key")),
            value=_bytes_of(fields.get("value")),
            headers=tuple((str(name), _bytes_of(content)) for name, content in fields.get("headers") or ()),
            timestamp=_number_of("timestamp", fields.get("timestamp")),
            partition=_number_of("partition", fields.get("partition")),
        )
    except (ValueError, TypeError) as error:
        raise BadLineError(index, str(error), hint) from error


def _bytes_of(value: Json) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode("utf-8", "surrogateescape")
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
    raise ValueError(f"{json.dumps(value)[:40]} is neither text nor base64")


def _number_of(name: str, value: Json) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{json.dumps(value)[:40]} is not a {name}")


class LineSplitter:
    """Cuts a stream of bytes into lines. Owns the beginning of the line that has not ended."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that have ended, without their ends."""
        lines = (self._begun + data).split(b"\n")
        self._begun = lines.pop()
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it has no end."""
        begun, self._begun = self._begun, b""
        return [begun] if begun else []
