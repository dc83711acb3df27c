"""What a broker remembers, what it refuses to start on, and what a crash between two steps leaves behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.errors import ConfigError, ErrorCode, LockHeldError
from ottla.net.server import bind_socket
from ottla.protocol.messages.metadata import DescribeTopicPartitionsRequest
from ottla.protocol.messages.metadata import DescribeTopicPartitionsRequestTopicRequest as DescribedTopic
from ottla.protocol.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic, DeleteTopicsRequest
from ottla.records import batch
from ottla.storage import checkpoints
from ottla.store.api import Create, Delete
from ottla.store.embedded import EmbeddedStore
from ottla.testing.broker import Broker
from ottla.testing.disk import SimulatedDisk
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce


def end_offset(client: RawClient, topic: str, partition: int = 0) -> tuple[int, int]:
    found = client.ask(list_offsets(topic, -1, partition=partition), 7).topics[0].partitions[0]
    return found.error_code, found.offset


def test_topics_ids_partitions_and_records_are_remembered(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        client.ask(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=1, validate_only=False
            ),
            3,
        )
        client.ask(produce("t", one_batch(b"kept"), partition=4), 9)
        before = client.ask(metadata(all_topics=True), 12)
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        after = client.ask(metadata(all_topics=True), 12)
        for partition in after.topics[0].partitions:
            partition.leader_epoch -= 1  # a broker that comes back is elected anew
        assert (after.cluster_id, after.topics) == (before.cluster_id, before.topics)
        assert end_offset(client, "t", 4) == (0, 1)


def epochs_told(client: RawClient) -> list[int]:
    """The leader epochs of topic t as Metadata and DescribeTopicPartitions tell them, which must agree."""
    told = [one.leader_epoch for one in client.ask(metadata("t"), 12).topics[0].partitions]
    described = client.ask(DescribeTopicPartitionsRequest(topics=[DescribedTopic(name="t")]), 0).topics[0].partitions
    assert [one.leader_epoch for one in described] == told
    return told


def epoch_end(client: RawClient, epoch: int, *, current: int = -1) -> tuple[int, int, int]:
    """Error, epoch and end of what OffsetForLeaderEpoch says of partition 0 of topic t."""
    entry = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[entry])])
    answer = client.ask(request, 4).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("is_killed", [False, True])
def test_every_start_is_an_election_with_an_epoch_of_its_own(is_killed: bool, tmp_path: Path) -> None:
    """As Kafka's controller does it: whoever heard of the leader before the restart can tell it from the one after."""
    broker = Broker(directory=tmp_path, in_process=False).start()
    try:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", 2), 7)
            client.ask(produce("t", one_batch(b"a", b"b")), 9)
            assert epochs_told(client) == [0, 0]
            assert epoch_end(client, 0, current=0) == (0, 0, 2)
        for epoch in (1, 2):
            if is_killed:
                broker.kill()
            broker.restart()
            with RawClient(broker.bootstrap_servers) as client:
                assert epochs_told(client) == [epoch, epoch]
                assert epoch_end(client, 0) == (0, 0, 2), "the records of the first epoch are its own"
                assert epoch_end(client, epoch, current=epoch) == (0, epoch, 2)
                assert epoch_end(client, 0, current=epoch - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH
                assert epoch_end(client, 0, current=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(produce("t", one_batch(b"c")), 9)
            assert [epoch_end(client, epoch) for epoch in range(3)] == [(0, 0, 2), (0, 0, 2), (0, 2, 3)]
            data = bytes(client.ask(fetch("t"), 11).responses[0].partitions[0].records)
            first = batch.read_header(data)
            assert (first.leader_epoch, batch.read_header(data, first.size_bytes).leader_epoch) == (0, 2)
    finally:
        broker.stop()


def test_the_election_of_a_start_writes_to_no_log_in_which_nothing_happens(tmp_path: Path) -> None:
    """Thousands of partitions would be thousands of syncs, at every start and stop."""
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 3), 7)
        for partition in range(3):
            client.ask(produce("t", one_batch(b"a"), partition=partition), 9)
    before = contents(tmp_path)
    for _ in range(2):
        with Broker(directory=tmp_path):
            pass
        assert contents(tmp_path) == before


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """The files of the logs in a data directory: when each was written, and what it says."""
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(directory.glob("t-*/*"))}


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(directory=tmp_path), pytest.raises(LockHeldError):
        Broker(directory=tmp_path).start()


def test_a_directory_of_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    with Broker({"broker.id": "3"}, directory=tmp_path):
        pass
    with pytest.raises(ConfigError, match="belongs to broker 3"):
        Broker({"broker.id": "4"}, directory=tmp_path).start()
    meta = tmp_path / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=another"))
    with pytest.raises(ConfigError, match="belongs to cluster another"):
        Broker({"broker.id": "3"}, directory=tmp_path).start()


KAFKA_WITH_ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=fWjuQkDQTLSnbZbTdn6Vmg\n"
KAFKA_WITH_KRAFT = "version=1\nnode.id=1\ncluster.id=fWjuQkDQTLSnbZbTdn6Vmg\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"


@pytest.mark.parametrize("meta", [KAFKA_WITH_ZOOKEEPER, KAFKA_WITH_KRAFT, None])
def test_a_directory_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, meta: str | None) -> None:
    log = tmp_path / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(b"somebody's records")
    if meta is not None:
        (tmp_path / "meta.properties").write_text(meta)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="name another directory"):
        Broker(directory=tmp_path).start()
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != ".lock"] == before
    assert log.read_bytes() == b"somebody's records"


def test_metadata_that_was_lost_is_not_begun_anew_over_the_logs(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
    for lost in (tmp_path / ".ottla-metadata" / "metadata.journal", tmp_path / ".ottla-metadata"):
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
        with pytest.raises(ConfigError, match="whose metadata is not here"):
            Broker(directory=tmp_path).start()
        assert (tmp_path / "t-0").is_dir()


def test_logs_of_no_topic_are_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
    shutil.copytree(tmp_path / "t-0", tmp_path / "copied-by-hand-0")
    with Broker(directory=tmp_path):
        assert [text for text in caplog.messages if "copied-by-hand" in text] == [
            f"{tmp_path}/copied-by-hand-0 does not belong to a topic of this cluster; it is ignored"
        ]
    assert (tmp_path / "copied-by-hand-0").is_dir()


def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path) -> None:
    with Broker({"broker.id": "3"}, directory=tmp_path):
        pass
    with pytest.raises(ConfigError):
        Broker({"broker.id": "4"}, directory=tmp_path).start()
    with Broker({"broker.id": "3"}, directory=tmp_path) as broker:
        assert broker.running.node_id == 3


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with Broker() as running, pytest.raises(ConfigError, match=r"cannot listen on .*in use"):
        Broker(directory=tmp_path, listen=running.bootstrap_servers).start()


def test_a_deletion_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        topic_id = client.ask(create_topic("t"), 7).topics[0].topic_id
        client.ask(produce("t", one_batch(b"old")), 9)

        async def forget_in_the_store_only() -> None:
            store = broker.running.store
            await store.commit(
                Create("/admin/delete_topics/t", b'{"version":1,"topic_id":"%s"}' % _text(topic_id)),
                Delete("/brokers/topics/t/partitions/0/state"),
                Delete("/brokers/topics/t/partitions/0"),
                Delete("/brokers/topics/t/partitions"),
                Delete("/brokers/topics/t"),
            )

        broker.call(forget_in_the_store_only())
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        assert end_offset(client, "t") == (0, 0), "the old records are not the new topic's"
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        assert broker.call(broker.running.store.children("/admin/delete_topics")) == []


def _text(topic_id: UUID) -> bytes:
    from ottla.ids import topic_id_text

    return topic_id_text(topic_id).encode()


def test_records_of_a_strange_topic_are_neither_served_nor_destroyed(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        client.ask(produce("t", one_batch(b"somebody's")), 9)
    (tmp_path / "t-0").rename(tmp_path / "strange-0")
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("strange"), 7)
        answer = client.ask(produce("strange", one_batch(b"new")), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        (aside,) = tmp_path.glob("strange-0.*-stray")
        assert b"somebody's" in (aside / f"{0:020}.log").read_bytes()


def test_a_log_whose_directory_does_not_name_its_topic_is_taken(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        client.ask(produce("t", one_batch(b"kept")), 9)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert end_offset(client, "t") == (0, 1)
        topic_id = client.ask(metadata("t"), 12).topics[0].topic_id
        assert checkpoints.read_topic_id(broker.running.disk, str(tmp_path / "t-0")) == topic_id


def test_a_partition_is_not_made_anew_while_a_directory_that_may_hold_it_is_offline() -> None:
    disk = SimulatedDisk()
    settings = {"log.dirs": "/a,/b"}
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 4), 7)
        for partition in range(4):
            client.ask(produce("t", one_batch(b"x"), partition=partition), 9)
        on_b = {log.name.partition for log in broker.running.logs.directories[1].logs.values()}
        assert len(on_b) == 2
    fault = disk.fail("/b/*", "open", 5)
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        for partition in range(4):
            expected = (ErrorCode.KAFKA_STORAGE_ERROR, -1) if partition in on_b else (0, 1)
            assert end_offset(client, "t", partition) == expected
        client.ask(create_topic("new", 2), 7)
        assert end_offset(client, "new", 1) == (0, 0), "new partitions go where there is room"
    disk.heal(fault)
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        for partition in range(4):
            assert end_offset(client, "t", partition) == (0, 1)
            assert bytes(client.ask(fetch("t", partitions=(partition,)), 11).responses[0].partitions[0].records)


# -- coming back -------------------------------------------------------------------------------------------------------


def test_a_client_that_connects_while_the_broker_starts_is_served_once_it_is_ready(tmp_path: Path) -> None:
    """A refused one would come back after a pause, and after a longer one the next time."""

    async def scenario() -> None:
        gate = asyncio.Event()

        async def behind_the_gate(work: Callable[[], None]) -> None:
            await gate.wait()
            work()

        with bind_socket("127.0.0.1", 0) as sock:
            broker = RunningBroker(
                {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"},
                bind=lambda host, port: sock,
                open_store=lambda disk, directory: EmbeddedStore(disk, directory, behind_the_gate),
            )
            starting = asyncio.create_task(broker.start())
            await asyncio.sleep(0)
            early = await asyncio.to_thread(RawClient, "{}:{}".format(*sock.getsockname()))
            early.send(metadata(), 12)
            assert not starting.done()
            gate.set()
            await starting
            answer, _ = await asyncio.to_thread(early.receive)
            assert answer.brokers
            early.close()
            await broker.stop()

    asyncio.run(scenario())


def test_the_command_listens_before_it_loads_the_broker() -> None:
    program = "import sys, ottla.cli.serve; print(sorted(name for name in sys.modules if name.startswith('ottla.')))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "ottla.net.server" in loaded
    assert "ottla.broker" not in loaded
    assert "ottla.protocol.messages" not in loaded, "of the protocol, frames alone"
    assert "ottla.protocol.schema" not in loaded


def test_a_kill_costs_no_syncs_for_logs_that_nobody_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics of the coordinators alone have a hundred partitions, nearly all of them empty."""
    with Broker(directory=tmp_path, in_process=False) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("empty", 100), 7)
        broker.kill()
    synced: list[int] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with Broker(directory=tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert client.ask(metadata("empty"), 12).topics[0].error_code == ErrorCode.NONE
        assert len(synced) < 50
