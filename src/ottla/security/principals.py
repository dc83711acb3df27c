"""Principals: who somebody is, in Kafka's form `User:name`, and how the name in a certificate becomes one.

A certificate's subject is written as RFC 2253 has it, as Java does: the last part first, and short names for the
attributes that have one there. Rules (`ssl.principal.mapping.rules`) may then make a plain name of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.errors import ConfigError

USER = "User"
ANONYMOUS = f"{USER}:ANONYMOUS"  # a peer that has not said who it is, in Kafka's words

# By object identifier; what Java has no short name for, it writes as numbers and the bytes of the value.
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Types of text, by tag. Of other types Java writes the bytes.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String, as everybody uses it
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
_VERSION_TAG: Final = 0xA0
_SPECIAL = re.compile(r'([,=+<>#;"\\])')
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:[,\n]|$)",
    re.DOTALL,
)
_GROUP = re.compile(r"\$(\d)")
_SETTING = "ssl.principal.mapping.rules"


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule; no pattern: the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What the rule makes of a name; None where it is for others."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        def group(reference: re.Match[str]) -> str:
            number = int(reference[1])
            return reference[0] if number > self.pattern.groups else match[number] or ""  # type: ignore[union-attr]

        mapped = _GROUP.sub(group, self.replacement)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules that a setting lists; ConfigError names the one that cannot be read."""
    rules = []
    position = 0
    while text[position:].strip(" ,\n\t"):
        position += len(text[position:]) - len(text[position:].lstrip(" ,\n\t"))
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"{_SETTING}: {text[position:]!r} is not a rule: DEFAULT or RULE:pattern/replacement/[L|U]"
            )
        position = match.end()
        if match["default"]:
            rules.append(MappingRule())
            continue
        try:
            pattern = re.compile(match["pattern"].replace(r"\/", "/"))
        except re.error as error:
            raise ConfigError(f"{_SETTING}: {match['pattern']!r} is not a regular expression: {error}") from error
        rules.append(MappingRule(pattern, match["replacement"].replace(r"\/", "/"), match["case"]))
    return tuple(rules)


def mapped_name(name: str, rules: Iterable[MappingRule]) -> str | None:
    """What the first rule that fits makes of it; None where none does."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    return None


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER) as Java writes it; ValueError where there is none that can be read."""
    try:
        ((_, _, whole),) = _elements(certificate)
        fields = _elements(next(_elements(whole))[2])
        first, _, _ = next(fields)
        for _ in range(4 if first == _VERSION_TAG else 3):  # serial number, algorithm, issuer, validity
            next(fields)
        _, _, subject = next(fields)
        parts = ["+".join(map(_attribute, _elements(part))) for _, _, part in _elements(subject)]
    except (StopIteration, IndexError) as error:
        raise ValueError("the certificate has no subject that can be read") from error
    return ",".join(reversed(parts))


def _attribute(element: tuple[int, bytes, bytes]) -> str:
    (_, _, identifier), (tag, encoded, value) = _elements(element[2])
    name = _dotted(identifier)
    if name not in _SHORT_NAMES or tag not in _ENCODINGS:
        return f"{_SHORT_NAMES.get(name, name)}=#{encoded.hex()}"
    return f"{_SHORT_NAMES[name]}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """What stands in an element of DER: tag, all bytes, and those of the value."""
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            length_bytes = size & 0x7F
            size = int.from_bytes(data[start : start + length_bytes])
            start += length_bytes
        end = start + size
        if end > len(data):
            raise ValueError("an element of the certificate ends behind it")
        yield tag, data[at:end], data[start:end]
        at = end


def _dotted(identifier: bytes) -> str:
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value).replace("\0", "\\00")
    text = escaped.strip(" ")
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(text) - leading if text else 0
    return "\\ " * leading + text + "\\ " * trailing
