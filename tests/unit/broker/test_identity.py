"""Whose directory is it: cluster and broker ids, in Kafka's meta.properties."""

from __future__ import annotations

import random
import re

import pytest

from ottla.broker.identity import Identity, check_identity, check_ours, new_cluster_id, read_identity
from ottla.disk import read_file
from ottla.errors import ConfigError
from ottla.testing.disk import SimulatedDisk

METADATA = ".metadata-of-ours"
ZOOKEEPER = b"#\n#Mon Jan 01 00:00:00 UTC 2024\ncluster.id=c\nversion=0\nbroker.id=1\n"
KRAFT = b"#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=c\n"
KRAFT_WITHOUT_ID = b"version=1\ncluster.id=c\n"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        disk.make_directory(path)
    return disk


def write_meta(disk: SimulatedDisk, directory: str, content: bytes) -> None:
    file = disk.open(f"{directory}/meta.properties", create=True, writable=True)
    file.write(0, content)
    file.close()


def test_directories_without_an_owner_become_ours(disk: SimulatedDisk) -> None:
    assert read_identity(disk, "/a") is None
    check_identity(disk, ["/a", "/b"], Identity("c", 3))
    for path in ("/a", "/b"):
        assert read_identity(disk, path) == Identity("c", 3)
    check_identity(disk, ["/a", "/b"], Identity("c", 3))


def test_a_directory_of_another_cluster_or_broker_is_refused_and_left_alone(disk: SimulatedDisk) -> None:
    check_identity(disk, ["/a"], Identity("c", 3))
    before = read_file(disk, "/a/meta.properties")
    with pytest.raises(ConfigError, match="/a belongs to cluster c, this is d"):
        check_identity(disk, ["/a"], Identity("d", 3))
    with pytest.raises(ConfigError, match=r"set broker.id=3"):
        check_identity(disk, ["/a"], Identity("c", 4))
    assert read_file(disk, "/a/meta.properties") == before


@pytest.mark.parametrize("has_metadata", [False, True])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (KRAFT, "/a belongs to Apache Kafka in KRaft mode .node 1 of cluster c"),
        (KRAFT_WITHOUT_ID, "/a belongs to Apache Kafka in KRaft mode"),
        (b"version=99\nbroker.id=1\ncluster.id=c\n", "version=99, and this version of Ottla supports version=0 only"),
        (b"broker.id=1\ncluster.id=c\n", "version=None"),
        (b"version=0\nbroker.id=1\n", "does not name a broker"),
        (b"version=0\ncluster.id=c\n", "does not name a broker"),
        (b"version=0\ncluster.id=c\nbroker.id=one\n", "does not name a broker"),
    ],
)
def test_what_is_not_our_file_is_refused_whatever_lies_beside_it(
    disk: SimulatedDisk, content: bytes, words: str, has_metadata: bool
) -> None:
    if has_metadata:
        disk.make_directory(f"/a/{METADATA}")
    write_meta(disk, "/a", content)
    with pytest.raises(ConfigError, match=words) as refused:
        check_ours(disk, ["/a"], METADATA)
    assert "name another directory (--data or log.dirs)" in str(refused.value)
    with pytest.raises(ConfigError, match=words):
        check_identity(disk, ["/a"], Identity("c", 1))


def test_a_directory_of_kafka_with_zookeeper_is_known_by_the_metadata_that_is_missing(disk: SimulatedDisk) -> None:
    write_meta(disk, "/a", ZOOKEEPER)
    disk.make_directory("/a/orders-0")
    with pytest.raises(ConfigError, match="broker 1 of cluster c, whose metadata is not here") as refused:
        check_ours(disk, ["/a"], METADATA)
    assert "`ottla import`" in str(refused.value)


def test_of_several_directories_one_has_the_metadata_and_it_is_the_first(disk: SimulatedDisk) -> None:
    check_ours(disk, ["/a", "/b"], METADATA)  # both are new
    check_identity(disk, ["/a", "/b"], Identity("c", 1))
    disk.make_directory(f"/a/{METADATA}")
    for path in ("/a/orders-0", "/b/orders-1"):
        disk.make_directory(path)
    check_ours(disk, ["/a", "/b"], METADATA)
    with pytest.raises(ConfigError, match=r"metadata of this broker is in /a.*name /a first"):
        check_ours(disk, ["/b", "/a"], METADATA)
    with pytest.raises(ConfigError, match="/b belongs to broker 1 of cluster c, whose metadata is not here"):
        check_ours(disk, ["/b"], METADATA)


def test_a_directory_of_kafka_beside_ours_is_refused(disk: SimulatedDisk) -> None:
    check_identity(disk, ["/a"], Identity("c", 1))
    disk.make_directory(f"/a/{METADATA}")
    check_ours(disk, ["/a", "/b"], METADATA)  # a new directory may join
    write_meta(disk, "/b", KRAFT)
    with pytest.raises(ConfigError, match="/b belongs to Apache Kafka"):
        check_ours(disk, ["/a", "/b"], METADATA)


@pytest.mark.parametrize("has_metadata", [False, True])
def test_logs_that_nothing_says_are_ours_are_refused(disk: SimulatedDisk, has_metadata: bool) -> None:
    if has_metadata:
        disk.make_directory(f"/a/{METADATA}")
        check_identity(disk, ["/a"], Identity("c", 1))
    for name in ("orders-0", "orders-1", "orders-2", "orders-3"):
        disk.make_directory(f"/b/{name}")
    directories = ["/a", "/b"] if has_metadata else ["/b"]
    with pytest.raises(ConfigError, match=r"/b holds logs of topics \(orders-0, orders-1, orders-2, …\) and no meta"):
        check_ours(disk, directories, METADATA)


def test_what_is_no_log_is_nobodys_business(disk: SimulatedDisk) -> None:
    for name in ("lost+found", "notes", ".trash"):
        disk.make_directory(f"/a/{name}")
    disk.open("/a/orders-0", create=True, writable=True).close()  # a file
    check_ours(disk, ["/a"], METADATA)


def test_a_first_start_that_was_cut_short_can_be_tried_again(disk: SimulatedDisk) -> None:
    disk.make_directory(f"/a/{METADATA}")  # the metadata is there before the file is
    check_ours(disk, ["/a", "/b"], METADATA)
    check_identity(disk, ["/a"], Identity("c", 1))
    check_ours(disk, ["/a", "/b"], METADATA)


def test_a_cluster_id_is_22_characters_and_no_option() -> None:
    for seed in range(300):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", new_cluster_id(random.Random(seed)))
