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
from ottla.cli.parser import did_you_mean
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


def unescape(text: str) -> bytes:
    """Bytes as they are typed, with the escape sequences of `--format`; a backslash before anything else is itself."""

    def replace(found: re.Match[str]) -> str:
        hexadecimal, letter = found.groups()
        data = bytes.fromhex(hexadecimal) if hexadecimal else _ESCAPES.get(letter)
        return found[0] if data is None else data.decode("latin-1")

    escaped = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|(.))", replace, escaped, flags=re.DOTALL).encode("latin-1")


def _bad_format(text: str, problem: str, hint: str) -> CommandError:
    return CommandError(ExitCode.USAGE, f"bad format {text!r}: {problem}", hint)


def _render_values(null: bytes) -> RenderBatch:
    """One value per line: what is asked for most, in one call."""

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


def json_renderer(*, is_key_json: bool = False, is_value_json: bool = False) -> RenderBatch:
    """A JSON document per line, with everything that a record has; a key or value that is JSON is part of it."""
    show_key = _parsed_json if is_key_json else bytes_json
    show_value = _parsed_json if is_value_json else bytes_json

    def render(partition: TopicPartition, columns: Columns) -> bytes:
        lines = [
            json_line(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": offset,
                    "timestamp": timestamp,
                    "key": show_key(key),
                    "value": show_value(value),
                    "headers": [[name, bytes_json(content)] for name, content in headers],
                }
            )
            for offset, timestamp, key, value, headers in zip(*columns, strict=True)
        ]
        return "".join(f"{line}\n" for line in lines).encode()

    return render


def _parsed_json(text: bytes | None) -> Json:
    parsed: Json = None if text is None else json.loads(text)
    return parsed


# -- in ----------------------------------------------------------------------------------------------------------------


class BadLineError(Exception):
    """A line that is not a record; those before it are sound. `index` counts from 0 in the lines that were given."""

    def __init__(self, index: int, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.index = index
        self.hint = hint


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record: headers, key and value, each but the last ended by its separator."""

    key_separator: bytes | None = None
    headers_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: Headers = ()  # of every record, before its own

    def parse(self, lines: Sequence[bytes], now_ms: int) -> RecordColumns:
        headers: list[Headers] | None = [self.headers] * len(lines) if self.headers else None
        keys: list[bytes | None] | None = None
        values: list[bytes | None] = list(lines)
        if self.headers_separator is not None:
            own, lines = _split(lines, self.headers_separator, "headers")
            headers = [(*self.headers, *self._parse_headers(index, text)) for index, text in enumerate(own)]
            values = list(lines)
        if self.key_separator is not None:
            first, rest = _split(lines, self.key_separator, "key")
            keys, values = list(first), list(rest)
        if self.null_marker is not None:
            values = [None if value == self.null_marker else value for value in values]
            keys = keys and [None if key == self.null_marker else key for key in keys]
        return RecordColumns(values, now_ms, keys, headers)

    def _parse_headers(self, index: int, text: bytes) -> Headers:
        """`name=value,name=value`, as `%h` writes them."""
        if not text:
            return ()
        parsed: list[tuple[str, bytes | None]] = []
        for part in text.split(b","):
            name, equals, value = part.partition(b"=")
            if not equals:
                raise BadLineError(
                    index, f"{part.decode('utf-8', 'replace')!r} is not a header", "write NAME=VALUE,NAME=VALUE"
                )
            parsed.append((name.decode("utf-8", "surrogateescape"), None if value == self.null_marker else value))
        return tuple(parsed)


def _split(lines: Sequence[bytes], separator: bytes, noun: str) -> tuple[list[bytes], list[bytes]]:
    """What is before the separator of each line, and what is after it."""
    before: list[bytes] = []
    after: list[bytes] = []
    for index, line in enumerate(lines):
        first, found, rest = line.partition(separator)
        if not found:
            raise BadLineError(
                index,
                f"it does not contain the separator {_shown(separator)} after the {noun}",
                f"write the {noun}, the separator and the rest",
            )
        before.append(first)
        after.append(rest)
    return before, after


def _shown(data: bytes) -> str:
    return repr(data.decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """A line of `--json-lines`: what `ottla consume --json` writes is understood."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    partition: int | None


# What `ottla consume --json` writes and a record does not choose for itself.
INT64_MAX: Final = 2**63 - 1
_NOT_SENT: Final = ("topic", "offset")
_JSON_FIELDS: Final = ("key", "value", "headers", "timestamp", "partition")


def parse_json_line(index: int, line: bytes) -> JsonRecord:
    hint = 'write {"key": "k", "value": "v", "headers": [["name", "value"]]}, bytes as {"base64": "…"}'
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        for name in fields:
            if name not in _JSON_FIELDS and name not in _NOT_SENT:
                raise ValueError(f"a record has no field {name!r}{did_you_mean(name, _JSON_FIELDS)}".rstrip("?"))
        return JsonRecord(
            key=_bytes_of(fields.get("key")),
            value=_bytes_of(fields.get("value")),
            headers=_headers_of(fields.get("headers")),
            timestamp=_number_of("timestamp", fields.get("timestamp")),
            partition=_number_of("partition", fields.get("partition")),
        )
    except (ValueError, TypeError) as error:
        raise BadLineError(index, str(error), hint) from error


def _headers_of(value: Json) -> Headers:
    """A list of pairs, as names may repeat, or an object."""
    if isinstance(value, dict):
        return tuple((name, _bytes_of(content)) for name, content in value.items())
    headers: list[tuple[str, bytes | None]] = []
    for pair in value if isinstance(value, list) else [value] if value is not None else []:
        match pair:
            case [str(name), content]:
                headers.append((name, _bytes_of(content)))
            case _:
                raise ValueError(f"{json.dumps(pair)[:40]} is not a header")
    return tuple(headers)


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
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX):
        return value
    raise ValueError(f"{json.dumps(value)[:40]} is not a {name}")


class LineSplitter:
    """Cuts a stream of bytes into lines. Owns the beginning of the line that has not ended."""

    def __init__(self, delimiter: bytes = b"\n") -> None:
        self._delimiter = delimiter
        self._begun = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that have ended, without their ends."""
        lines = (self._begun + data).split(self._delimiter)
        self._begun = lines.pop()
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it has no end."""
        begun, self._begun = self._begun, b""
        return [begun] if begun else []
