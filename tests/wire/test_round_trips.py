"""Every message in every version comes back as it went out."""

from random import Random
from typing import Any

import pytest

from ottla.protocol.codec import decode, decode_at, encode, encode_parts
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import all_messages
from ottla.testing.messages import random_message, smallest_message

MESSAGES = all_messages()
EVERY_VERSION = [(cls, version) for cls in MESSAGES for version in message_schema_of(cls).versions]
SEEDS = range(6)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_random_content_comes_back_from_bytes_and_from_views(cls: type) -> None:
    for version in message_schema_of(cls).versions:
        for seed in SEEDS:
            message: Any = random_message(cls, version, Random(f"{cls.__name__} {version} {seed}"))
            encoded = encode(message, version)
            assert decode_at(cls, encoded, version) == (message, len(encoded))
            assert decode_at(cls, memoryview(encoded), version) == (message, len(encoded))


def test_the_smallest_message_of_every_version_comes_back() -> None:
    for cls, version in EVERY_VERSION:
        message: Any = smallest_message(cls, version)
        encoded = encode(message, version)
        assert decode_at(cls, encoded, version) == (message, len(encoded)), f"{cls.__name__} {version}"


def test_bytes_after_a_message_are_ignored() -> None:
    """librdkafka 2.0.2 sends some after ListGroups v4 and OffsetFetch v7."""
    for cls, version in EVERY_VERSION:
        message: Any = random_message(cls, version, Random(1))
        assert decode(cls, encode(message, version) + b"\xff\x00trailing", version) == message, cls.__name__


def test_a_message_is_found_at_its_position() -> None:
    for cls, version in EVERY_VERSION:
        message: Any = random_message(cls, version, Random(2))
        encoded = encode(message, version)
        assert decode_at(cls, b"before" + encoded, version, 6) == (message, 6 + len(encoded)), cls.__name__


def test_the_parts_of_a_message_in_memory_are_its_bytes() -> None:
    for cls, version in EVERY_VERSION:
        message: Any = random_message(cls, version, Random(3))
        parts = encode_parts(message, version)
        assert b"".join(parts) == encode(message, version), cls.__name__  # type: ignore[arg-type]
