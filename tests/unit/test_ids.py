from uuid import UUID

import pytest

from ottla.ids import ZERO_TOPIC_ID, TopicPartition, is_valid_topic_name, parse_topic_id, topic_id_text

TOPIC_ID = UUID("b8f5c3d2-1a2b-4c3d-8e4f-5a6b7c8d9e0f")


def test_a_partition_is_written_as_its_directory_is_named() -> None:
    assert str(TopicPartition("my-topic", 12)) == "my-topic-12"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "...", "x" * 249])
def test_names_of_letters_digits_dots_dashes_and_underscores_are_topic_names(name: str) -> None:
    assert is_valid_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a:b", "a\0"])
def test_other_names_are_not(name: str) -> None:
    assert not is_valid_topic_name(name)


def test_a_topic_id_is_written_in_kafkas_twenty_two_characters() -> None:
    assert topic_id_text(TOPIC_ID) == "uPXD0horTD2OT1prfI2eDw"
    assert parse_topic_id("uPXD0horTD2OT1prfI2eDw") == TOPIC_ID
    assert topic_id_text(ZERO_TOPIC_ID) == "A" * 22


def test_a_topic_id_uses_the_characters_that_are_safe_in_a_url() -> None:
    every_bit = UUID(int=2**128 - 1)
    assert topic_id_text(every_bit) == "_" * 21 + "w"
    assert parse_topic_id(topic_id_text(every_bit)) == every_bit


@pytest.mark.parametrize("text", ["", "uPXD0horTD2OT1prfI2eD", "uPXD0horTD2OT1prfI2eDw=", "uPXD0horTD2OT1prfI2eD*"])
def test_other_texts_are_no_topic_ids(text: str) -> None:
    with pytest.raises(ValueError, match=r"22 characters|base64"):
        parse_topic_id(text)
