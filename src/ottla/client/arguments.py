"""Wrong arguments, reported at the call: a text in place of a list; what cannot be a partition or an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from ottla.client.error_codes import InvalidTopicError
from ottla.ids import TopicPartition, is_valid_topic_name
from ottla.records.layout import INT32_MAX

Key = TypeVar("Key")

INT64_MAX: Final = 2**63 - 1


def several(keys: Iterable[Key], what: str = "names") -> Iterable[Key]:
    """The same. A text would be taken letter by letter."""
    if isinstance(keys, str | bytes):
        raise TypeError(f"a list of {what} is wanted, not the text {keys!r}; write [{keys!r}]")
    return keys


def partitions_of(given: Iterable[Any]) -> list[TopicPartition]:
    """Partitions, also as pairs of a topic and a number."""
    return [partition_of(each) for each in several(given, "partitions")]


def partition_of(given: Any) -> TopicPartition:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a partition is a topic and a number, TopicPartition('orders', 0), not {given!r}")
    topic, number = given
    if not isinstance(topic, str) or not is_whole(number, INT32_MAX):
        raise TypeError(f"a partition is a topic and a number from 0 on, not {topic!r} and {number!r}")
    return TopicPartition(topic, number)


def topics_and_settings(given: Iterable[Any]) -> tuple[dict[str, Any], list[str]]:
    """What stands before the keywords of a consumer: names of topics, and settings as mappings."""
    settings: dict[str, Any] = {}
    topics: list[str] = []
    for each in given:
        if isinstance(each, str):
            topics.append(each)
        elif isinstance(each, Mapping):
            settings.update(each)
        else:
            raise TypeError(f"topics are given one by one, Consumer('orders', 'bills', …), not as {each!r}")
    return settings, topics


def check_topic(name: Any) -> None:
    if not isinstance(name, str) or not is_valid_topic_name(name):
        raise InvalidTopicError(f"{name!r} is not the name of a topic")


def offset_of(given: Any) -> int:
    if not is_whole(given, INT64_MAX):
        raise ValueError(f"an offset is a whole number and not negative: {given!r}")
    return int(given)


def time_of(given: Any) -> int:
    """Milliseconds since 1970, which may be given as a datetime."""
    if isinstance(given, datetime):
        given = int(given.timestamp() * 1000)
    if not is_whole(given, INT64_MAX):
        raise ValueError(f"a time is a datetime, or milliseconds since 1970, not {given!r}")
    return int(given)


def is_whole(given: Any, largest: int) -> bool:
    """Whether it is a number that the protocol can carry; True and False are not meant."""
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= largest
