r"""Reads Java's `.properties` format: the format of `server.properties`.

`name=value`, `name:value` or `name value`; `#` and `!` begin a comment line; a `\` at the end of a line continues it;
`\t \n \r \f \uXXXX` and a `\` before any other character are escapes. The format is line-based, so what is wrong can
always be reported with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """A value and where it was given: `server.properties, line 3`, `--set`."""

    value: str
    origin: str


class Properties(Mapping[str, str]):
    """Names and their texts; knows where each was given, and has `notes` on what its author may not have meant."""

    def __init__(self, given: Mapping[str, Property], notes: tuple[str, ...] = ()) -> None:
        self._given = dict(given)
        self.notes = notes

    def __getitem__(self, name: str) -> str:
        return self._given[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def origin(self, name: str) -> str:
        return self._given[name].origin

    def overridden(self, properties: Mapping[str, str], origin: str) -> Properties:
        """These properties with others on top, as a command line puts its options on top of a file."""
        return Properties(
            {**self._given, **{name: Property(value, origin) for name, value in properties.items()}}, self.notes
        )


def parse_properties(text: str, source: str = "server.properties") -> Properties:
    """The properties of a file's text; ConfigError names the line that is not a property."""
    given: dict[str, Property] = {}
    first_lines: dict[str, int] = {}
    notes = []
    for number, line in _logical_lines(text):
        name_text, value_text = _split(line)
        try:
            name, value = _unescaped(name_text), _unescaped(value_text)
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
        if not name:
            raise ConfigError(f"{source}, line {number}: a value without a name: {line}")
        if name in given:
            notes.append(f"{source}: {name} is given in lines {first_lines[name]} and {number}; the last one counts")
        first_lines.setdefault(name, number)
        given[name] = Property(value, f"{source}, line {number}")
    return Properties(given, tuple(notes))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, continued ones joined, with the number of their first line."""
    begun: list[str] = []
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = line.lstrip(_BLANK)
        if not begun:
            if not line or line[0] in "#!":
                continue
            first = number
        if _is_continued(line):
            begun.append(line[:-1])
            continue
        yield first, "".join([*begun, line])
        begun = []
    if begun:
        yield first, "".join(begun)


def _is_continued(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Name and value, still escaped: the name ends at the first blank, `=` or `:` that no backslash precedes."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u must be followed by four hexadecimal digits, not by {digits!r}")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Java writes a character beyond the first 65,536 as two halves.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
