import pytest

from ottla.hashing import java_string_hash, murmur2, partition_of_coordinator, partition_of_key


@pytest.mark.parametrize(
    ("key", "signed", "partition_of_12"),
    [
        (b"", 275646681, 9),
        (b"a", -1563381124, 4),
        (b"21", -973932308, 0),
        (b"abc", 479470107, 3),
        (b"foobar", -790332482, 6),
        (b"a-little-bit-long-string", -985981536, 8),
        (b"a-little-bit-longer-string", -1486304829, 11),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5),
    ],
)
def test_a_key_goes_where_the_java_producer_sends_it(key: bytes, signed: int, partition_of_12: int) -> None:
    assert murmur2(key) == signed & 0xFFFF_FFFF
    assert partition_of_key(key, 12) == partition_of_12


@pytest.mark.parametrize(
    ("name", "java_hash", "partition_of_50"),
    [
        ("", 0, 0),
        ("g", 103, 3),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -2147483648, 0),
        ("grüße-😀", 347391577, 27),
    ],
)
def test_a_group_has_the_coordinator_that_every_broker_computes(
    name: str, java_hash: int, partition_of_50: int
) -> None:
    assert java_string_hash(name) == java_hash
    assert partition_of_coordinator(name, 50) == partition_of_50
