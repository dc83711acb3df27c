"""Where records go: as Java's and librdkafka's do."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from ottla.client.errors import SettingsError
from ottla.client.producer.partitioners import Murmur2, RoundRobin, Sticky, partitioner_of

VECTORS = Path(__file__).parents[5] / "shared" / "protocol" / "clients" / "client_vectors.json"
ALL = list(range(10))


def test_keys_go_where_java_sends_them():
    if not VECTORS.exists():
        pytest.skip(f"{VECTORS.name} of Java's client is not here")
    for vector in json.loads(VECTORS.read_text())["murmur2"]:
        key = vector["key"].encode()
        assert Murmur2().partition("t", key, 10, ALL) == vector["of_10"]
        assert Murmur2().partition("t", key, 50, ALL) == vector["of_50"]


def test_crc32_is_librdkafkas():
    crc32 = partitioner_of("consistent_random", ignores_keys=False)
    assert crc32.partition("t", b"foobar", 10, ALL) == 0x9EF61F95 % 10
    assert crc32.partition("t", b"", 10, ALL) is None
    assert crc32.partition("t", None, 10, ALL) is None


def test_round_robin_goes_round_those_with_a_leader():
    robin = RoundRobin()
    assert [robin.partition("t", b"k", 4, [0, 2, 3]) for _ in range(4)] == [0, 2, 3, 0]
    assert [robin.partition("other", None, 2, []) for _ in range(3)] == [0, 1, 0]


def test_a_partitioner_is_a_name_an_object_or_a_function():
    own = partitioner_of(lambda key, every, available: every[-1], ignores_keys=False)
    assert own.partition("t", b"k", 7, [0]) == 6
    assert partitioner_of(None, ignores_keys=True).partition("t", b"k", 7, [0]) is None
    robin = RoundRobin()
    assert partitioner_of(robin, ignores_keys=False) is robin
    with pytest.raises(SettingsError, match="no partitioner is called 'fair'"):
        partitioner_of("fair", ignores_keys=False)
    with pytest.raises(SettingsError, match="neither the name"):
        partitioner_of(5, ignores_keys=False)


def test_sticky_stays_until_a_batch_of_bytes_went_there():
    sticky = Sticky(100, random.Random(1))
    first = sticky.choose(10, ALL)
    assert sticky.choose(10, ALL) == first
    sticky.appended(99)
    assert not sticky.has_produced_a_batch
    sticky.appended(1)
    assert sticky.has_produced_a_batch
    assert not sticky.has_produced_two
    sticky.switch(10, ALL)
    assert not sticky.has_produced_a_batch


def test_sticky_prefers_partitions_with_short_queues_and_leaves_out_those_without_leader():
    sticky = Sticky(1, random.Random(1))
    sticky.load([0, 9, 0, 4], available=[0, 1, 3])
    counts: Counter[int] = Counter()
    for _ in range(3000):
        sticky.switch(4, [0, 1, 3])
        counts[sticky.partition] += 1
    assert set(counts) == {0, 1, 3}
    assert counts[0] > counts[3] > counts[1]
    # Weights are 10, 1 and 6 of 17.
    assert abs(counts[0] / 3000 - 10 / 17) < 0.05


def test_equal_queues_make_no_difference():
    sticky = Sticky(1, random.Random(1))
    sticky.load([3, 3], available=[0, 1])
    counts: Counter[int] = Counter()
    for _ in range(1000):
        sticky.switch(2, [0, 1])
        counts[sticky.partition] += 1
    assert abs(counts[0] - counts[1]) < 200


def test_where_none_has_a_leader_any_will_do():
    sticky = Sticky(1, random.Random(1))
    assert sticky.choose(3, []) in range(3)
