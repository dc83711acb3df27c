"""Whose directory is it: cluster and broker ids, in Kafka's meta.properties."""

from __future__ import annotations

import random
import re

import pytest

from ottla.broker.identity import Identity, check_identity, new_cluster_id, read_identity
from ottla.disk import read_file
from ottla.errors import ConfigError
from ottla.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        disk.make_directory(path)
    return disk


def test_directories_without_an_owner_become_ours(disk: SimulatedDisk) -> None:
    assert read_identity(disk, "/a") == {}
    check_identity(disk, ["/a", "/b"], Identity("c", 3))
    for path in ("/a", "/b"):
        fields = read_identity(disk, path)
        assert (fields["cluster.id"], fields["broker.id"]) == ("c", "3")
    check_identity(disk, ["/a", "/b"], Identity("c", 3))


def test_a_directory_of_another_cluster_or_broker_is_refused_and_left_alone(disk: SimulatedDisk) -> None:
    check_identity(disk, ["/a"], Identity("c", 3))
    before = read_file(disk, "/a/meta.properties")
    with pytest.raises(ConfigError, match="/a belongs to cluster c, this is d"):
        check_identity(disk, ["/a"], Identity("d", 3))
    with pytest.raises(ConfigError, match=r"set broker.id=3"):
        check_identity(disk, ["/a"], Identity("c", 4))
    assert read_file(disk, "/a/meta.properties") == before


def test_the_file_of_a_kraft_broker_is_understood(disk: SimulatedDisk) -> None:
    file = disk.open("/a/meta.properties", create=True, writable=True)
    file.write(0, b"#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=c\n")
    file.close()
    check_identity(disk, ["/a"], Identity("c", 1))
    with pytest.raises(ConfigError, match="belongs to broker 1"):
        check_identity(disk, ["/a"], Identity("c", 2))


def test_a_cluster_id_is_22_characters_and_no_option() -> None:
    for seed in range(300):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", new_cluster_id(random.Random(seed)))
