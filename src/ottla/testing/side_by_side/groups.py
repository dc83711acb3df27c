"""A side that talks about groups."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_groups import ASSIGNED_NOTHING, join, sync
from ottla.testing.raw_transactions import GROUP_KEY, find_coordinator
from ottla.testing.side_by_side.side import Side
from ottla.testing.waiting import wait_until


class GroupSide(Side):
    """A side whose groups have a coordinator from the start."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        super().__init__(bootstrap_servers, prefix)
        wait_for_group_coordinator(self.client, "any")

    def new_member(self, group: str, version: int = 9, client: RawClient | None = None, **more: Any) -> str:
        """A member id of the broker's making, not joined yet."""
        return str(self.ask(join(group, **more), version, client=client).member_id)

    def lone_member(self, group: str, **more: Any) -> tuple[str, int]:
        """A member alone in its group, with its assignment; its id and generation."""
        member = self.new_member(group, **more)
        joined = self.ask(join(group, member, **more), 9)
        spoken = {"protocol_type": more.get("protocol_type", "consumer")}
        self.ask(sync(group, joined.generation_id, member, {member: ASSIGNED_NOTHING}, **spoken), 5)
        return member, joined.generation_id

    def own_groups(self, answer: Any) -> Any:
        """A note of ListGroups: only the groups of this conversation, in order."""
        answer.groups = sorted(
            (group for group in answer.groups if group.group_id.startswith(self.name(""))),
            key=lambda group: group.group_id,
        )
        return answer


def wait_for_group_coordinator(client: RawClient, group: str) -> None:
    """Until there is one and it has loaded: Kafka makes the topic and has its client ask again."""
    find_coordinator(client, group, GROUP_KEY)
    entry = OffsetFetchRequestGroup(group_id=group, topics=None)
    wait_until(lambda: not client.ask(OffsetFetchRequest(groups=[entry]), 8).groups[0].error_code)
