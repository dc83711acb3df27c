"""Options as Spark hands them over: names in lower case, values as text. Pure, and light: every process of Spark that
has a source or a sink reads its options first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Mapping
from typing import Final, TypeVar

from ottla.errors import ConfigError

Value = TypeVar("Value")

_ADDRESS: Final = re.compile(r"(\[[^\[\]]+\]|[^:/\[\]\s]+):\d{1,5}")
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
SURELY_MEANT: Final = 0.85  # how like a name that is known an unknown one must be
NO_OPTIONS: Final = (
    "kafka.bootstrap.servers is missing, and so is every other option: Spark passes none to a table that was declared "
    "with CREATE TABLE … USING ottla OPTIONS (…). Declare a view of a DataFrame instead: "
    'spark.read.format("ottla").option(…).load().createOrReplaceTempView("orders")'
)


class OptionError(ConfigError):
    """An option that is missing, not understood or at odds with another one."""


class OptionReader:
    """The options of a query, and which of them somebody has asked for."""

    def __init__(self, options: Mapping[str, str], spellings: Mapping[str, str]) -> None:
        """`spellings`: how messages write a name that has capital letters."""
        self._options = {name.lower(): value for name, value in options.items()}
        self._spellings = spellings
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._options

    def take(self, name: str, read: Callable[[str], Value], default: Value) -> Value:
        self._taken.add(name)
        if name not in self._options:
            return default
        try:
            return read(self._options[name])
        except (ValueError, TypeError) as error:
            reason = f": {error}" if str(error) else ""
            spelled = self._spellings.get(name, name)
            raise OptionError(f"{spelled} cannot be {self._options[name]!r}{reason}") from error

    def is_text(self, name: str, text: str) -> bool:
        """Whether an option is this one word; it counts as asked for if it is."""
        is_it = self._options.get(name, "").strip().lower() == text
        if is_it:
            self._taken.add(name)
        return is_it

    def left(self) -> list[str]:
        """The options that nobody asked for yet."""
        return sorted(self._options.keys() - self._taken)

    def left_with(self, values: Container[str]) -> list[str]:
        """Those of them that have one of these values."""
        return [name for name in self.left() if self._options[name].strip().lower() in values]

    def ignored(self, without_meaning: Container[str]) -> tuple[str, ...]:
        """The options that nobody asked for, in words: each with the option that was probably meant."""
        return tuple(name + self._hint(name) for name in self.left() if name not in without_meaning)

    def _hint(self, name: str) -> str:
        meant = difflib.get_close_matches(name, sorted(self._taken), n=1, cutoff=SURELY_MEANT)
        return f" (did you mean {self._spellings.get(meant[0], meant[0])}?)" if meant else ""

    def refuse(self, refused: Mapping[str, str], what: str) -> None:
        """An error for the first of the `refused` that is there, with the advice that stands beside it."""
        for name, advice in refused.items():
            if self.has(name):
                raise OptionError(f"{name} is not an option of {what}: {advice}")

    def bootstrap_servers(self) -> str:
        """Only complete addresses: a guessed port would be tried for a minute before anybody learns of it."""
        servers = self.take("kafka.bootstrap.servers", str, "")
        if not self._options.keys() - {"path"}:
            raise OptionError(NO_OPTIONS)
        addresses = [address.strip() for address in servers.split(",") if address.strip()]
        if not addresses:
            raise OptionError("kafka.bootstrap.servers is missing: give at least one broker as HOST:PORT")
        for address in addresses:
            if not _ADDRESS.fullmatch(address):
                raise OptionError(
                    f"kafka.bootstrap.servers has {address!r}: write HOST:PORT with the port, such as 127.0.0.1:9092"
                )
        return servers


def read_boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.strip().lower() == "true"


def _read_whole(text: str, least: int, most: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"write a whole number of at least {least}")
    if int(text) > most:
        raise ValueError(f"write a whole number of at most {most}")
    return int(text)


# As wide as Kafka's and Spark's settings of these names: a larger number would fail in the first task, as some field of
# a request that it does not fit.
def read_count(text: str) -> int:
    return _read_whole(text, 1, INT32_MAX)


def read_natural(text: str) -> int:
    return _read_whole(text, 0, INT32_MAX)


def read_long_count(text: str) -> int:
    return _read_whole(text, 1, INT64_MAX)


def read_long_natural(text: str) -> int:
    return _read_whole(text, 0, INT64_MAX)
