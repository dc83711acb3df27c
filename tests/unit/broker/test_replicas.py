"""The partitions of one broker follow the image of the cluster, whatever its disks do meanwhile."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.disk_failures import DiskFailures
from ottla.broker.replicas import Replicas
from ottla.cluster.image import ClusterImage, PartitionState, TopicState
from ottla.config import LogConfig
from ottla.errors import ApiError, ErrorCode, StorageError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.runtime.turns import Turns
from ottla.storage.logs import Logs
from ottla.testing.disk import Fate, SimulatedDisk
from ottla.testing.inline import InlineOffload
from ottla.testing.log_upkeep import write_high_watermarks

NODE, OTHER = 1, 2
ROOTS = ["/one", "/two"]
EMPTY = ClusterImage("c")
DELAY_MS = 60_000


class Clock:
    time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def steady_ms(self) -> int:
        return self.time_ms


def topic(
    name: str = "t",
    partitions: int = 1,
    *,
    number: int = 1,
    leader: int = NODE,
    epoch: int = 0,
    replicas: tuple[int, ...] = (NODE,),
    isr: tuple[int, ...] | None = None,
) -> TopicState:
    state = PartitionState(replicas, leader, epoch, (leader,) if isr is None else isr)
    return TopicState(name, UUID(int=number), (state,) * partitions)


def image_of(*topics: TopicState) -> ClusterImage:
    return EMPTY.with_topics(topics)


def done(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class Machine:
    """Disks, and the broker's partitions on them."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = SimulatedDisk() if disk is None else disk
        self.clock = Clock()
        self.failures = DiskFailures()
        self.logs = Logs(self.disk, ROOTS, lambda topic: LogConfig(), rng=random.Random(1))
        self.logs.open(self.clock.time_ms)
        self.replicas = Replicas(NODE, self.logs, self.clock, self.failures)
        self.replicas.load_high_watermarks()
        self.image = EMPTY

    def start_with(self, image: ClusterImage) -> None:
        """What the store knows when the broker starts."""
        self.replicas.apply(image)
        self.image = image

    def change(self, *changed: TopicState, removed: tuple[str, ...] = ()) -> None:
        """The controller changes topics: the logs are made, the image is published, what went is taken away."""
        image = self.image.with_topics(changed, removed)

        async def tell() -> None:
            await self.replicas.prepare(image, InlineOffload(), Turns())
            self.replicas.apply(image)
            await self.replicas.finish(InlineOffload())

        done(tell())
        self.image = image

    def restart(self, *, power_loss: bool = False) -> Machine:
        return Machine(self.disk.crash(3, (Fate.DROPPED,)) if power_loss else self.disk.kill())

    def refusal(self, name: str = "t", index: int = 0) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.replicas.find(name, index)
        return caught.value.code

    def produce(self, name: str = "t", index: int = 0, count: int = 1) -> None:
        partition = self.replicas.find(name, index)
        data = batch.build(None, [b"v"] * count, self.clock.time_ms)
        partition.append(memoryview(data), acks=-1, now_ms=self.clock.time_ms)

    def end_offset(self, name: str = "t", index: int = 0) -> int:
        return self.replicas.find(name, index).log.end_offset

    def names(self, root: str) -> list[str]:
        return [name for name in self.disk.list_directory(root) if self.disk.is_directory(f"{root}/{name}")]

    def deleted(self) -> list[str]:
        return [name for root in ROOTS for name in self.names(root) if name.endswith("-delete")]


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.start_with(EMPTY)
    return machine


# -- finding -----------------------------------------------------------------------------------------------------------


def test_a_partition_is_found_by_its_name_and_by_the_id_of_its_topic(machine: Machine) -> None:
    machine.change(topic("t", 2, number=7))
    partition = machine.replicas.find("t", 1)
    assert machine.replicas.find_by_id(UUID(int=7), 1) is partition
    assert machine.replicas.find_named_or_by_id("", UUID(int=7), 1) is partition
    assert machine.replicas.find_named_or_by_id("t", UUID(int=0), 1) is partition
    assert machine.replicas.of_topic("t") == [machine.replicas.find("t", 0), partition]
    assert machine.replicas.of_topic("u") == []
    assert len(machine.replicas) == 2


def test_what_is_not_found_is_unknown_or_elsewhere(machine: Machine) -> None:
    machine.change(topic("t"), topic("there", number=2, leader=OTHER, replicas=(OTHER,)))
    assert machine.refusal("never") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.refusal("t", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.refusal("there") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as caught:
        machine.replicas.find_by_id(UUID(int=9), 0)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


# -- keeping in step ---------------------------------------------------------------------------------------------------


def test_a_partition_whose_role_the_controller_has_not_said_yet_is_not_offline(machine: Machine) -> None:
    """A broker that is back knows the metadata first: clients are to look for the leader, no disk has failed."""
    machine.replicas.update_image(EMPTY.with_topics([topic()]))
    assert machine.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_topic_is_led_at_once_in_its_epoch_and_its_logs_say_whose_they_are(machine: Machine) -> None:
    machine.change(topic("t", 3, epoch=4))
    for partition in machine.replicas:
        assert partition.leader.epoch == 4
        assert partition.log.epochs.latest == 4
        assert machine.logs.owner_of(partition.name) == UUID(int=1)
    assert {len(machine.names(root)) for root in ROOTS} == {1, 2}


def test_a_partition_is_here_and_not_led_where_another_broker_leads_it(machine: Machine) -> None:
    machine.change(topic(leader=OTHER, replicas=(NODE, OTHER)))
    assert not machine.replicas.find("t", 0).is_leader


def test_what_was_committed_stays_so_when_the_topic_changes(machine: Machine) -> None:
    machine.change(topic("t", 1))
    machine.produce(count=3)
    machine.change(topic("t", 2, epoch=1))
    partition = machine.replicas.find("t", 0)
    assert (partition.leader.epoch, partition.high_watermark) == (1, 3)


def test_a_start_goes_on_from_the_checkpointed_high_watermark_as_far_as_the_log_reaches(machine: Machine) -> None:
    machine.change(topic("t", 2))
    machine.produce("t", 0, count=5)
    write_high_watermarks(machine.logs, {TopicPartition("t", 0): 3, TopicPartition("t", 1): 3})
    again = machine.restart()
    again.start_with(image_of(topic("t", 2, epoch=1, replicas=(NODE, OTHER), isr=(NODE, OTHER))))
    assert again.replicas.high_watermarks() == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0}


def test_partitions_of_one_change_do_not_wait_for_an_earlier_image(machine: Machine) -> None:
    """What `prepare` made is led once the image counts, and is made once only."""
    image = image_of(topic("t", 2))
    done(machine.replicas.prepare(image, InlineOffload(), Turns()))
    made = {partition.name: partition.log for partition in machine.replicas}
    machine.start_with(image)
    assert {partition.name: partition.log for partition in machine.replicas} == made


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_at_once_and_whoever_waits_for_it_is_told(machine: Machine) -> None:
    machine.change(topic("t"), topic("u", number=2))
    partition = machine.replicas.find("t", 0)
    machine.change(removed=("t",))
    assert partition.is_gone
    assert machine.refusal("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert machine.logs.get(TopicPartition("t", 0)) is None
    assert len(machine.deleted()) == 1
    assert machine.replicas.find("u", 0).is_leader


def test_a_topic_that_is_made_anew_under_its_name_starts_empty(machine: Machine) -> None:
    machine.change(topic(number=1))
    machine.produce(count=3)
    machine.change(removed=("t",))
    machine.change(topic(number=2))
    assert machine.end_offset() == 0
    assert machine.replicas.find("t", 0).topic_id == UUID(int=2)


def test_a_deletion_without_a_descriptor_is_finished_later(machine: Machine) -> None:
    """Else the directories would stay until the next start, and a power loss could bring the topic back."""
    machine.change(topic("t", 2))
    machine.disk.run_out_of_descriptors(machine.disk.descriptors_taken, 1000)
    machine.change(removed=("t",))
    assert all(directory.is_online for directory in machine.logs.directories), "a full table is no failing disk"
    machine.disk.run_out_of_descriptors(0, 0)
    due_ms = machine.clock.time_ms + DELAY_MS
    assert machine.logs.take_due_directories(due_ms) == []
    done(machine.replicas.finish_delayed(InlineOffload()))
    assert len(machine.logs.take_due_directories(due_ms)) == 2
    again = machine.restart(power_loss=True)
    assert list(again.logs) == []


def test_a_deletion_that_is_finished_later_spares_the_topic_that_has_the_name_by_then(machine: Machine) -> None:
    machine.change(topic(number=1))
    machine.produce(count=3)
    machine.disk.run_out_of_descriptors(machine.disk.descriptors_taken, 1)
    machine.change(removed=("t",))
    machine.change(topic(number=2))
    machine.produce()
    done(machine.replicas.finish_delayed(InlineOffload()))
    assert machine.end_offset() == 1
    again = machine.restart()
    again.start_with(machine.image)
    assert again.end_offset() == 1


def test_what_a_crash_left_of_a_deleted_topic_is_deleted_and_another_of_its_name_is_not(machine: Machine) -> None:
    machine.change(topic("t"), topic("u", number=2))
    again = machine.restart()
    again.start_with(EMPTY)
    assert sorted(str(log.name) for log in again.replicas.unclaimed()) == ["t-0", "u-0"]
    again.replicas.finish_deletion("t", UUID(int=1))
    again.replicas.finish_deletion("u", UUID(int=9))
    assert [str(log.name) for log in again.replicas.unclaimed()] == ["u-0"]


def test_a_log_of_another_topic_is_set_aside_for_a_new_one(machine: Machine) -> None:
    machine.change(topic(number=1))
    machine.produce(count=3)
    again = machine.restart()
    again.start_with(EMPTY)
    again.change(topic(number=2))
    assert again.end_offset() == 0
    assert any(name.endswith("-stray") for root in ROOTS for name in again.names(root))


# -- disks that fail ---------------------------------------------------------------------------------------------------


def test_a_disk_that_fails_takes_its_partitions_and_spares_the_others(machine: Machine) -> None:
    machine.change(topic("t", 4))
    broken = machine.logs.directories[0]
    (name, log), *_ = broken.logs.items()
    partition = machine.replicas.find(*name)
    machine.replicas.directory_failed(log, StorageError(log.directory, "cannot write: Input/output error"))
    assert partition.is_gone
    lost = machine.failures.take_lost_partitions()
    assert sorted(lost) == sorted(machine.replicas.offline)
    assert len(lost) == 2
    assert machine.refusal(*name) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(machine.replicas) == 2
    machine.change(topic("t", 4, epoch=1))
    assert machine.refusal(*name) is ErrorCode.KAFKA_STORAGE_ERROR, "another log would begin anew"


def test_a_failure_in_the_middle_of_an_append_is_recorded_and_changes_nothing_but_its_partition(
    machine: Machine,
) -> None:
    machine.change(topic("t", 4))
    broken = machine.logs.directories[0]
    name, other, *_ = broken.logs
    machine.disk.fail("/one*", "write", errno.EIO)
    partition = machine.replicas.find(*name)
    with pytest.raises(ApiError) as refusal:
        machine.produce(*name)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_leader, "nothing more is written there"
    assert broken.is_online, "the task takes it offline, in a turn of its own"
    assert machine.replicas.find(*other).is_leader
    ((log, error),) = machine.failures.take_failures()
    machine.replicas.directory_failed(log, error)
    assert not broken.is_online
    assert set(machine.failures.take_lost_partitions()) == {name, other}


def test_a_log_that_is_deleted_already_takes_nobody_with_it(machine: Machine) -> None:
    machine.change(topic("t"), topic("u", number=2))
    log = machine.replicas.find("t", 0).log
    machine.change(removed=("t",))
    machine.change(topic("t", number=3))
    machine.replicas.directory_failed(log, StorageError(log.directory, "is not there"))
    assert machine.failures.take_lost_partitions() == []
    assert len(machine.replicas) == 2


def test_a_partition_that_may_be_on_the_disk_that_failed_gets_no_second_log_at_a_start(machine: Machine) -> None:
    machine.change(topic("t", 2))
    machine.disk.fail("/one*", "read", errno.EIO)
    faults = machine.disk.faults
    disk = machine.disk.kill()
    disk.faults = faults
    again = Machine(disk)
    again.start_with(machine.image)
    assert len(again.replicas) == 1
    assert len(again.replicas.offline) == 1


def test_a_disk_that_fails_while_a_log_is_made_leaves_that_partition_offline(machine: Machine) -> None:
    machine.disk.fail("/one/t-*", "create", errno.EIO)
    machine.change(topic("t", 2))
    assert [directory.is_online for directory in machine.logs.directories] == [False, True]
    assert len(machine.replicas.offline) == 1
    assert len(machine.replicas) == 1


def test_a_partition_without_a_descriptor_is_tried_again(machine: Machine) -> None:
    machine.disk.run_out_of_descriptors(machine.disk.descriptors_taken, 1000)
    machine.change(topic())
    assert machine.refusal() is ErrorCode.KAFKA_STORAGE_ERROR
    assert machine.replicas.offline == []
    assert machine.replicas.add_delayed()
    machine.disk.run_out_of_descriptors(0, 0)
    assert machine.replicas.add_delayed()
    assert machine.replicas.find("t", 0).is_leader
    assert not machine.replicas.add_delayed()


def test_a_topic_that_is_deleted_before_there_is_a_descriptor_is_not_tried_again(machine: Machine) -> None:
    machine.disk.run_out_of_descriptors(machine.disk.descriptors_taken, 1000)
    machine.change(topic())
    machine.disk.run_out_of_descriptors(0, 0)
    machine.change(removed=("t",))
    assert not machine.replicas.add_delayed()
    assert len(machine.replicas) == 0
