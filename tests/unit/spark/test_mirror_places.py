from __future__ import annotations

from ottla.ids import TopicPartition
from ottla.spark.jobs.mirror import PLACES_KEPT_MAX, Places, translated

A = TopicPartition("orders", 0)
THERE = TopicPartition("west.orders", 0)
NAMES = {"orders": "west.orders"}


def test_a_group_gets_the_last_place_that_is_not_after_what_it_has_read() -> None:
    places = Places()
    places.add({A: 10}, {A: 12})
    places.add({A: 20}, {A: 25})
    assert [places.find(A, offset) for offset in (9, 10, 19, 20, 99)] == [None, 12, 12, 25, 25]
    assert places.find(TopicPartition("other", 0), 5) is None


def test_a_batch_that_is_run_again_moves_no_place() -> None:
    places = Places()
    places.add({A: 10}, {A: 12})
    places.add({A: 10}, {A: 14})
    assert places.find(A, 10) == 12


def test_places_are_bounded() -> None:
    places = Places()
    for number in range(1, PLACES_KEPT_MAX + 11):
        places.add({A: number}, {A: number})
    assert places.find(A, 10) is None
    assert places.find(A, 11) == 11


def test_a_group_is_never_led_back_and_other_topics_are_left_alone() -> None:
    places = Places()
    places.add({A: 10}, {A: 12})
    read = {A: 10, TopicPartition("other", 0): 3}
    assert translated(read, {}, places.find, NAMES) == {THERE: 12}
    assert translated(read, {THERE: 12}, places.find, NAMES) == {}
    assert translated(read, {THERE: 11}, places.find, NAMES) == {THERE: 12}
