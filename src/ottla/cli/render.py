"""How values look on a terminal and in JSON, the same for every command."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from ottla.ids import NO_TIMESTAMP

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# Made once: `json.dumps` makes a new encoder at every call that is not as it likes.
_encode_json: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def json_line(fields: Mapping[str, Json]) -> str:
    """One JSON document on one line. Surrogates, as in names that are not UTF-8, are escaped."""
    return _encode_json(fields)


def time_text(timestamp_ms: int) -> str:
    """UTC with milliseconds; a number that is not a time of the calendar stays a number."""
    if timestamp_ms == NO_TIMESTAMP:
        return "no time"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def bytes_json(data: bytes | None) -> Json:
    """Text where the bytes are UTF-8, else an object with `base64`: nothing is lost and text stays readable."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def bytes_text(data: bytes | None, bytes_max: int) -> str:
    """At most `bytes_max` bytes, quoted where they are printable text, else in hexadecimal; safe for a terminal."""
    if data is None:
        return "null"
    shown = data[:bytes_max]
    rest = f"... ({len(data)} bytes)" if len(data) > bytes_max else ""
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError as error:
        # The limit may have cut the last character: that alone makes no binary data of a text.
        if not (rest and error.start >= len(shown) - 3):
            return f"0x{shown.hex()}{rest}"
        text = shown[: error.start].decode("utf-8")
    if not all(character.isprintable() or character in "\n\r\t" for character in text):
        return f"0x{shown.hex()}{rest}"
    return f"{json.dumps(text, ensure_ascii=False)}{rest}"


def count_text(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
