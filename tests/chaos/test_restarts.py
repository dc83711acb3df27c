"""A broker that is restarted again and again, by SIGTERM and by SIGKILL in turn, under a member of a group.

The member has the patience of a client: refused, it comes back after pauses that double. Nothing else may happen to it:
its first request after each restart is answered as if the broker had never been away.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.testing.broker import Broker
from ottla.testing.raw_client import ConnectionEnded, RawClient

RESTARTS = 4
GROUP = "readers"
PAUSE_S, PAUSE_S_MAX = 0.1, 10.0  # librdkafka's reconnect.backoff.ms and reconnect.backoff.max.ms
# What a client may be told on its way back, and asks again.
ON_THE_WAY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class Member:
    """The only member of its group, which heartbeats and never has to join again."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = self._connected()
        self.member_id, self.generation = "", -1

    def _connected(self) -> RawClient:
        pause_s = PAUSE_S
        while True:
            try:
                return RawClient(self._address)
            except OSError:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def join(self) -> None:
        asks = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        while self._client.ask(asks, 4).coordinators[0].error_code:
            time.sleep(PAUSE_S)
        code = ErrorCode.MEMBER_ID_REQUIRED
        while code == ErrorCode.MEMBER_ID_REQUIRED or code in ON_THE_WAY:
            joining = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            joined = self._client.ask(joining, 6)
            self.member_id, self.generation, code = joined.member_id, joined.generation_id, joined.error_code
        assert code == ErrorCode.NONE
        share = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        syncing = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=[share]
        )
        assert self._client.ask(syncing, 4).error_code == ErrorCode.NONE

    def heartbeat(self) -> ErrorCode:
        """What the broker says, once it says anything but that it is on its way."""
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        while True:
            try:
                code = ErrorCode(self._client.ask(request, 4).error_code)
            except (ConnectionEnded, OSError):
                self._client.close()
                self._client = self._connected()
                continue
            if code not in ON_THE_WAY:
                return code
            time.sleep(PAUSE_S)

    def close(self) -> None:
        self._client.close()


@pytest.mark.slow
def test_a_member_survives_restart_after_restart_without_joining_again(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, in_process=False) as broker:
        member = Member(broker.bootstrap_servers)
        member.join()
        for number in range(RESTARTS):
            if number % 2:
                broker.kill()
            else:
                broker.stop()
            broker.start()
            assert member.heartbeat() == ErrorCode.NONE, f"restart {number}"
        member.close()
