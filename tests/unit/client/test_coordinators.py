"""Whom a client asks about a group or a transactional id, and when it asks again who that is."""

from __future__ import annotations

import pytest

from ottla.client import coordinators
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.client.metadata import Cluster
from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from ottla.testing.loop import run

REQUEST = EndTxnRequest(transactional_id="copy", producer_id=1, producer_epoch=0, committed=True)


class Coordination:
    """Two brokers, of which `number` coordinates everything."""

    def __init__(self, network, options) -> None:
        self.number = 1
        self.brokers = [network.add(1), network.add(2)]
        self.cluster = Cluster([network.address(1)], options, network.connector)
        for number, broker in enumerate(self.brokers, 1):
            broker.scripts[FindCoordinatorRequest] = self._find
            broker.scripts[EndTxnRequest] = self._end_at(number)

    def _find(self, request, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=self.number, host="broker", port=9000 + self.number)

    def _end_at(self, number: int):
        def end(request, version: int) -> EndTxnResponse:
            return EndTxnResponse(error_code=0 if number == self.number else ErrorCode.NOT_COORDINATOR)

        return end

    async def ask(self, key: str = "copy") -> None:
        kind = CoordinatorType.TRANSACTION
        codes = lambda answer: (answer.error_code,)  # noqa: E731
        answer = await ask_coordinator(self.cluster, kind, key, REQUEST, EndTxnResponse, codes)
        assert answer.error_code == 0

    def lookups(self) -> int:
        return sum(len(broker.requests(FindCoordinatorRequest)) for broker in self.brokers)


@pytest.fixture
def coordination(network, options) -> Coordination:
    return Coordination(network, options)


def test_a_coordinator_is_looked_for_once(coordination: Coordination) -> None:
    async def main() -> None:
        async with coordination.cluster:
            for _ in range(3):
                await coordination.ask()

    run(main())
    assert coordination.lookups() == 1
    assert len(coordination.brokers[0].requests(EndTxnRequest)) == 3


def test_a_coordinator_that_moved_is_looked_for_again(coordination: Coordination) -> None:
    async def main() -> None:
        async with coordination.cluster:
            await coordination.ask()
            coordination.number = 2
            await coordination.ask()
            await coordination.ask()

    run(main())
    assert coordination.lookups() == 2
    assert [len(broker.requests(EndTxnRequest)) for broker in coordination.brokers] == [2, 2]


def test_a_client_knows_so_many_coordinators_and_no_more(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "KNOWN_MAX", 2)

    async def main() -> None:
        async with coordination.cluster:
            for key in ("a", "b", "c", "c", "a"):
                await coordination.ask(key)
            assert len(coordination.cluster.coordinators) == 2

    run(main())
    assert coordination.lookups() == 4


def test_a_coordinator_that_is_gone_from_the_cluster_is_looked_for_again(coordination: Coordination) -> None:
    """After a kill, the broker that is asked may still name it, when another one no longer knows it."""

    async def main() -> None:
        async with coordination.cluster:
            named = iter([9, 9, 1])
            for broker in coordination.brokers:
                broker.scripts[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
                    node_id=next(named), host="broker", port=9000
                )
            await coordination.ask()

    run(main())
    assert coordination.lookups() == 3
