"""Principals: who somebody is, in Kafka's form `User:name`, and how the name in a certificate becomes one.

A certificate's subject is written as RFC 2253 has it, as Java does: the last part first, and short names for the
attributes that have one there. Rules (`ssl.principal.mapping.rules`) may then make a plain name of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.errors import ConfigError

USER = "User"
ANONYMOUS = f"{USER}:ANONYMOUS"  # a peer that has not said who it is, in Kafka's words

# As `ssl` returns it: the parts of a name, each of one or more attributes.
Subject = Iterable[Iterable[tuple[str, str]]]

_SHORT_NAMES = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL = re.compile(r'([,+"\\<>;])')
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


def distinguished_name(subject: Subject) -> str:
    """The subject of a certificate as Java writes it."""
    parts = ["+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return escaped
