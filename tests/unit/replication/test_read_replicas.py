"""Which replica a consumer is to read from."""

import pytest

from ottla.replication.leader import Leader
from ottla.replication.read_replicas import has_rack_aware_selector, replica_in_rack

RACKS = {1: "a", 2: "b", 3: "b", 4: None}


def leader(isr: tuple[int, ...] = (1, 2, 3, 4)) -> Leader:
    """Broker 1 leads and ends at 10; 2 has all, 3 lacks the last, 4 has nothing yet."""
    known = Leader(1, 0, (1, 2, 3, 4), isr, end_offset=10, high_watermark=0)
    known.record_fetch(2, 10, 0, now_ms=100)
    known.record_fetch(3, 9, 5, now_ms=100)
    return known


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        ("a", 5, None),  # the leader's own
        ("", 5, None),
        ("c", 5, None),  # nobody is there
        ("b", 5, 2),
        ("b", 10, 2),
        ("b", 11, None),  # the leader says what is wrong with the offset
    ],
)
def test_the_one_in_the_consumers_rack_that_has_most(rack: str, offset: int, chosen: int | None) -> None:
    assert replica_in_rack(leader(), offset, rack, RACKS) == chosen


def test_only_replicas_that_are_in_sync_have_the_offset_and_can_be_reached() -> None:
    assert replica_in_rack(leader((1, 3)), 6, "b", RACKS) == 3
    assert replica_in_rack(leader((1, 3)), 4, "b", RACKS) is None  # 3 starts at 5
    assert replica_in_rack(leader((1, 3)), 10, "b", RACKS) is None
    assert replica_in_rack(leader(), 6, "b", {1: "a", 3: "b"}) == 3
    assert replica_in_rack(leader(), 6, "b", {1: "a"}) is None


def test_of_two_that_have_as_much_the_one_that_caught_up_later() -> None:
    known = leader()
    known.record_fetch(3, 10, 0, now_ms=200)
    assert replica_in_rack(known, 5, "b", RACKS) == 3


@pytest.mark.parametrize(
    ("name", "is_by_rack"),
    [
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
        ("RackAwareReplicaSelector", True),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        (None, False),
    ],
)
def test_the_selector_is_known_by_the_name_of_kafkas_class(name: str | None, is_by_rack: bool) -> None:
    assert has_rack_aware_selector(name) == is_by_rack
