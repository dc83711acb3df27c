"""What a local cluster consists of, from its first start on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.local_cluster.layout import BrokerPlace, Layout, Wanted, decide_layout, read_layout, write_layout
from ottla.local_cluster.process import ProcessIdentity
from ottla.local_cluster.running import Running, read_running, write_running

EXISTING = Layout((BrokerPlace(1, 9092), BrokerPlace(2, 9093)), (20001, 20002, 20003), {"num.partitions": "2"})


def ports(count: int) -> list[int]:
    return list(range(20_001, 20_001 + count))


def test_a_new_cluster_has_three_brokers_and_a_zookeeper():
    layout = decide_layout(None, Wanted(), ports)
    assert layout.brokers == (BrokerPlace(1, 9092), BrokerPlace(2, 9093), BrokerPlace(3, 9094))
    assert layout.zookeepers == 1


def test_a_single_broker_keeps_the_metadata_itself_unless_a_zookeeper_is_asked_for():
    assert decide_layout(None, Wanted(brokers=1), ports).zookeepers == 0
    assert decide_layout(None, Wanted(brokers=1, zookeepers=1), ports).zookeepers == 1


def test_the_ports_of_zookeeper_are_not_those_of_brokers():
    layout = decide_layout(None, Wanted(brokers=3, port=20_002, zookeepers=1), ports)
    assert layout.zookeeper_ports == (20_001, 20_005, 20_006)


def test_a_cluster_that_exists_stays_as_it_is_and_takes_more():
    assert decide_layout(EXISTING, Wanted(), ports) == EXISTING
    more = {"log.retention.hours": "2"}
    grown = decide_layout(EXISTING, Wanted(brokers=3, zookeepers=1, port=9092, settings=more), ports)
    brokers = (*EXISTING.brokers, BrokerPlace(3, 9094))
    assert grown == Layout(brokers, EXISTING.zookeeper_ports, {**EXISTING.settings, **more})


def test_the_ports_move_only_where_that_is_asked_for_and_nothing_runs():
    moved = decide_layout(EXISTING, Wanted(port=9192), ports)
    assert moved.brokers == (BrokerPlace(1, 9192), BrokerPlace(2, 9193))
    with pytest.raises(ConfigError, match="runs at port 9092; stop it first"):
        decide_layout(EXISTING, Wanted(port=9192), ports, is_running=True)


@pytest.mark.parametrize(
    ("existing", "wanted", "words"),
    [
        (None, Wanted(brokers=0), "--brokers 0: there must be at least one"),
        (None, Wanted(brokers=99_999), "^99999 brokers from port 9092 on: their ports"),
        (None, Wanted(zookeepers=-1), "--zookeepers -1: there cannot be fewer than none"),
        (None, Wanted(brokers=3, zookeepers=0), "3 brokers need a ZooKeeper between them"),
        (None, Wanted(brokers=3, port=65_534), "between 1 and 65535"),
        (None, Wanted(port=0), "between 1 and 65535"),
        (None, Wanted(settings={"no.such": "1"}), "--set: no.such: unknown setting"),
        (EXISTING, Wanted(settings={"num.partitions": "x"}), "must be a whole number"),
        (None, Wanted(settings={"broker.id": "5"}), "--set broker.id: each broker of this cluster has its own"),
        (None, Wanted(settings={"node.id": "5"}), "--set node.id: each broker of this cluster has its own"),
        (EXISTING, Wanted(settings={"log.dirs": "/tmp/a"}), "--set log.dirs: each broker"),
        (EXISTING, Wanted(settings={"listeners": "PLAINTEXT://127.0.0.1:9"}), "--set listeners: each broker"),
        (EXISTING, Wanted(brokers=1), "this cluster has 2"),
        (EXISTING, Wanted(zookeepers=3), "their number cannot change"),
        (Layout((BrokerPlace(1, 9092),)), Wanted(brokers=2), "cannot grow"),
    ],
)
def test_what_cannot_be_is_told(existing, wanted, words):
    with pytest.raises(ConfigError, match=words):
        decide_layout(existing, wanted, ports)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_topics_are_replicated_as_far_as_the_brokers_go(brokers, replicas, in_sync):
    settings = decide_layout(None, Wanted(brokers=brokers), ports).broker_settings()
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == replicas
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync


def test_the_first_connection_to_zookeeper_may_take_longer_than_a_session():
    settings = decide_layout(None, Wanted(brokers=3), ports).broker_settings()
    assert int(settings["zookeeper.connection.timeout.ms"]) > int(settings["zookeeper.session.timeout.ms"])
    alone = decide_layout(None, Wanted(brokers=1), ports).broker_settings()
    assert not [name for name in alone if name.startswith("zookeeper.")]


def test_the_settings_of_the_user_are_the_stronger_ones():
    layout = decide_layout(None, Wanted(settings={"min.insync.replicas": "3"}), ports)
    assert layout.broker_settings()["min.insync.replicas"] == "3"


def test_a_layout_is_read_as_it_was_written(tmp_path: Path):
    assert read_layout(tmp_path) is None
    write_layout(tmp_path, EXISTING)
    assert read_layout(tmp_path) == EXISTING


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"format": 2}', '{"format": 1, "brokers": [{}]}'),
        '{"format": 1, "brokers": [], "zookeeper_ports": [], "settings": {}}',
        '{"format": 1, "brokers": [{"broker_id": 1, "port": "x"}], "zookeeper_ports": [], "settings": {}}',
        '{"format": 1, "brokers": [{"broker_id": 1, "port": 1}], "zookeeper_ports": [], "settings": []}',
    ],
)
def test_a_file_that_is_no_layout_is_told_with_its_path(tmp_path: Path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ConfigError, match=r"cluster\.json: "):
        read_layout(tmp_path)


def test_processes_are_read_as_they_were_written(tmp_path: Path):
    assert read_running(tmp_path) == Running()
    running = Running({"broker 1": ProcessIdentity(4711, "then")}, ProcessIdentity(4712, "later"))
    write_running(tmp_path, running)
    assert read_running(tmp_path) == running
    assert running.living_supervisor() is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"supervisor": null, "processes": {"a": {}}}'])
def test_a_file_that_names_no_processes_is_told_with_its_path(tmp_path: Path, text):
    (tmp_path / "running.json").write_text(text)
    with pytest.raises(ConfigError, match=r"running\.json: "):
        read_running(tmp_path)
