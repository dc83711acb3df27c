"""The coordinator of transactions in thousands of small worlds: see `ottla.testing.transaction_model`.

`OTTLA_SIM_SEEDS=n` runs that many seeds (`make sim SEEDS=n`), `OTTLA_SIM_SEED=s` runs one.
"""

import pytest

from ottla.decisions import Decision, Ticket
from ottla.testing.seeds import portion_id, portions
from ottla.testing.transaction_model import World, run
from ottla.transactions.coordinator import DueMarkers, TransactionShard


def run_all(portion: range) -> list[World]:
    return [run(seed) for seed in portion]


@pytest.mark.parametrize("portion", portions(200, per_test=50), ids=portion_id)
def test_every_transaction_ends_as_its_producer_was_told(portion: range) -> None:
    outcomes = {attempt.outcome for world in run_all(portion) for attempt in world.attempts}
    assert len(portion) < 5 or outcomes == {True, False, None}, "too little happened"


def test_the_model_finds_a_coordinator_that_forgets_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TransactionShard.markers_written

    def hasty(shard: TransactionShard, due: DueMarkers, partitions: object, now_ms: int) -> Decision:
        return honest(shard, due, due.partitions, now_ms)

    monkeypatch.setattr(TransactionShard, "markers_written", hasty)
    with pytest.raises(AssertionError):
        run_all(range(50))


def test_the_model_finds_an_end_that_can_be_turned_into_its_opposite(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TransactionShard.due_markers

    def fickle(shard: TransactionShard, ticket: Ticket, now_ms: int) -> Decision:
        decision = honest(shard, ticket, now_ms)
        for _, due in decision.replies:
            assert isinstance(due, list)
            for one in due:
                object.__setattr__(one, "is_commit", bool(len(one.partitions) % 2))
        return decision

    monkeypatch.setattr(TransactionShard, "due_markers", fickle)
    with pytest.raises(AssertionError):
        run_all(range(50))
