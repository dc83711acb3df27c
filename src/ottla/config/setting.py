"""What a setting is: a name, a type, a default, bounds and a sentence of help.

A setting is declared once, as a field of a typed class; parsing, checking, documentation and `DescribeConfigs` all read
it from there. The field's name is the setting's name with `_` for `.`:

    num_partitions: int = setting(Kind.INT, 1, "The partitions of a topic that says nothing else.", minimum=1)
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from ottla.errors import ConfigError

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
SHOWN_LENGTH_MAX = 200

# Why settings have no effect.
NO_TIERED_STORAGE = "there is no tiered storage"


class Kind(StrEnum):
    """The types that Kafka's tools know a setting by, with their numbers in `DescribeConfigs`."""

    number: int

    def __new__(cls, name: str, number: int) -> Kind:
        member = str.__new__(cls, name)
        member._value_ = name
        member.number = number
        return member

    BOOLEAN = "boolean", 1
    STRING = "string", 2
    INT = "int", 3
    SHORT = "short", 4
    LONG = "long", 5
    DOUBLE = "double", 6
    LIST = "list", 7
    CLASS = "class", 8
    PASSWORD = "password", 9


class Update(StrEnum):
    """How a setting of the broker changes while it runs: for all brokers or one, for one only, or not at all."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


Value = bool | int | float | str | tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    `pattern` must match the text, of a list its items joined by commas; `form` says in words what it asks. `but_not`
    is a number within the bounds that is none all the same: a level that does not exist. `broker_names` are the
    broker's settings that give the default of a topic's or group's setting, the strongest first; those are in units of
    `unit` (how many milliseconds a `log.retention.hours` is). `minimum_before` is the one of Apache Kafka 3.9: it holds
    for what is set already, in its metadata or its file, and not for changes. `no_effect` says why a setting that is
    taken and kept changes nothing; an internal one is described only where somebody set it.
    """

    name: str
    kind: Kind
    default: Value | None
    help: str
    minimum: float = -math.inf
    minimum_before: float | None = None
    maximum: float = math.inf
    but_not: int | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""
    broker_names: tuple[str, ...] = ()
    unit: int = 1
    update: Update = Update.READ_ONLY
    no_effect: str = ""
    is_internal: bool = False

    @property
    def documentation(self) -> str:
        """The help, and that the setting has no effect where it has none."""
        return f"{self.help} Has no effect here: {self.no_effect}." if self.no_effect else self.help

    @property
    def attribute(self) -> str:
        return attribute_of(self.name)

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        return self.update is not Update.READ_ONLY

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; ConfigError names the setting, the text and what would do."""
        try:
            value = _CONVERTERS[self.kind](text.strip())
        except ValueError:
            raise self._refusal(text, _EXPECTED[self.kind]) from None
        if isinstance(value, (int, float)) and (not self.minimum <= value <= self.maximum or value == self.but_not):
            raise self._refusal(text, f"must be {self.range_in_words}")
        items = value if isinstance(value, tuple) else (value,)
        if self.choices and not set(items) <= set(self.choices):
            raise self._refusal(text, f"must be one of {', '.join(self.choices)}")
        if self.pattern:
            if not re.fullmatch(self.pattern, ",".join(map(str, items))):
                raise self._refusal(text, f"must be {self.form}")
            return value
        return _each_once(value) if isinstance(value, tuple) else value

    def parse_set(self, text: str) -> Value:
        """The same for a text that is set already, maybe by an earlier version that allowed more."""
        if self.minimum_before is None:
            return self.parse(text)
        return dataclasses.replace(self, minimum=self.minimum_before).parse(text)

    @property
    def range_in_words(self) -> str:
        bounds = []
        if self.minimum > -math.inf:
            bounds.append(f"at least {_plain(self.minimum)}")
        if self.maximum < math.inf:
            bounds.append(f"at most {_plain(self.maximum)}")
        if self.but_not is not None:
            bounds.append(f"not {self.but_not}")
        return " and ".join(bounds)

    def _refusal(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.is_sensitive else shortened(text)
        return ConfigError(f"{self.name}={shown}: {reason}")


def setting(kind: Kind, default: T, meaning: str, **details: Any) -> T:
    """Declares a field of a settings class; `details` are further fields of `Setting`.

    It returns a dataclass field and says that it returns the default, so that the checker holds the default against the
    type of the field, as it does for `dataclasses.field`.
    """
    declared: Any = dataclasses.field(default=default, metadata={"kind": kind, "help": meaning, **details})
    return declared  # type: ignore[no-any-return]


def settings_of(cls: type) -> dict[str, Setting]:
    """The settings that a class declares, by name."""
    settings = {}
    for field in dataclasses.fields(cls):
        if "kind" not in field.metadata:
            continue  # derived from settings, and none itself
        default: Any = field.default
        name = field.name.replace("_", ".")
        settings[name] = Setting(name=name, default=default, **field.metadata)
    return settings


def attribute_of(name: str) -> str:
    """The field that holds the setting `name`."""
    return name.replace(".", "_")


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """The error text for a setting that is not in `known`, with the nearest name that is."""
    import difflib  # not at the top: it takes long to import, and a broker that starts has no use for it

    shown = shortened(name)
    nearest = difflib.get_close_matches(shown, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{shown}: unknown setting{hint}"


def shortened(text: str) -> str:
    """As much of a text as an error repeats: clients choose it, and may send megabytes."""
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"


def format_value(value: Value | None) -> str | None:
    """The text of a value as Kafka prints it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _java_double(value: float) -> str:
    """The shortest text of a double in Java's style: plain from 0.001 up to ten million, with an exponent outside."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "settings hold finite numbers only"
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _number(text: str) -> str:
    if "_" in text:  # Python reads 1_000 as a number, no other tool that sets it does
        raise ValueError(text)
    return text


def _whole(bound: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(_number(text))
        if not -bound - 1 <= value <= bound:
            raise ValueError(text)
        return value

    return convert


def _double(text: str) -> float:
    value = float(_number(text))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _list(text: str) -> tuple[str, ...]:
    """The items with their gaps: a list of choices takes none (`delete,` is not a policy)."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _each_once(items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in items if item))


_CONVERTERS: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOLEAN: _boolean,
    Kind.SHORT: _whole(SHORT_MAX),
    Kind.INT: _whole(INT_MAX),
    Kind.LONG: _whole(LONG_MAX),
    Kind.DOUBLE: _double,
    Kind.STRING: str,
    Kind.LIST: _list,
    Kind.CLASS: str,
    Kind.PASSWORD: str,
}

_EXPECTED = {
    Kind.BOOLEAN: "must be true or false",
    Kind.SHORT: f"must be a whole number up to {SHORT_MAX} (short)",
    Kind.INT: f"must be a whole number up to {INT_MAX} (int)",
    Kind.LONG: f"must be a whole number up to {LONG_MAX} (long)",
    Kind.DOUBLE: "must be a number such as 0.5 (double)",
}
