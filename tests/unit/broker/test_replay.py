"""Loading a coordinator's log: what is applied, in which order, and that a restart brings back what was answered."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.journal import Replay
from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.records import batch, control
from ottla.records.control import EndTransactionMarker
from ottla.testing.raw_groups import commit
from ottla.testing.raw_transactions import GROUP_KEY
from ottla.testing.scene import Scene, perform

Entry = tuple[bytes, bytes | None]


def as_batches(entries: list[Entry], rng: Random) -> bytes:
    data, position = bytearray(), 0
    while position < len(entries):
        some = entries[position : position + rng.randint(1, 4)]
        data += batch.build([key for key, _ in some], [value for _, value in some], 5, base_offset=position)
        position += len(some)
    return bytes(data)


def applied(data: bytes) -> list[Entry]:
    seen: list[Entry] = []
    replay = Replay(lambda key, value, _: seen.append((key, value)), lambda producer_id, committed: None)
    replay.take(data)
    return seen


@pytest.mark.parametrize("seed", range(20))
def test_of_each_key_the_last_record_is_applied_where_it_stood(seed: int) -> None:
    """As if the log had been compacted, which keeps the last record of a key in its place and takes those before."""
    rng = Random(seed)
    entries = [(b"%d" % rng.randrange(6), rng.choice([None, b"%d" % number])) for number in range(40)]
    last = {key: number for number, (key, _) in enumerate(entries)}
    compacted = [entry for number, entry in enumerate(entries) if last[entry[0]] == number]
    assert applied(as_batches(entries, rng)) == compacted


def test_what_a_transaction_wrote_is_applied_in_its_place_and_ended_by_its_marker() -> None:
    events: list[object] = []
    replay = Replay(
        lambda key, value, producer: events.append((key, value, producer)), lambda *ended: events.append(ended)
    )
    data = bytearray(batch.build([b"a", b"b"], [b"1", b"1"], 5, base_offset=0))
    data += batch.build(
        [b"a"], [b"2"], 5, base_offset=2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    data += batch.build([b"b"], [b"2"], 5, base_offset=3)
    data += control.build_marker(7, 0, EndTransactionMarker(commit=True, coordinator_epoch=0), 5, base_offset=4)
    assert replay.take(bytes(data)) == 5
    assert events == [(b"a", b"1", -1), (b"b", b"1", -1), (b"a", b"2", 7), (b"b", b"2", -1), (7, True)]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_coordinator_knows_after_every_restart_what_it_has_answered(crashes: bool) -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic(partitions=3)
        await scene.find_coordinator("g", GROUP_KEY)
        committed: dict[int, int] = {}
        for life in range(1, 4):
            committed |= {life % 3: 10 * life, 2: life}
            answer = await scene.ask(commit("g", topic, committed), 8)
            assert not any(one.error_code for one in answer.topics[0].partitions)
            await scene.restart(crashes=crashes)
            await scene.find_coordinator("g", GROUP_KEY)
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            found = (await scene.ask(asked, 8)).groups[0]
            assert not found.error_code
            assert {one.partition_index: one.committed_offset for one in found.topics[0].partitions} == committed

    perform(play)
