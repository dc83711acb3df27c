"""How far a stream has read, as the offsets of a consumer group without members: every Kafka tool then shows its lag.

The checkpoint stays what decides where a stream continues. Offsets are committed once their batch is done, and a commit
that fails delays nothing: the next one says more.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future

from ottla.client.admin.groups import GroupDescription
from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.blocking import Blocking
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.spark.offsets import LATEST, Offsets
from ottla.spark.option_reader import OptionError

_log = logging.getLogger(__name__)


def check_group_is_free(client: Blocking, group: str) -> None:
    """An error where a group has members: their offsets and those of a stream would overwrite each other."""
    described = client.wait(ClusterAdmin(client.cluster).describe_groups([group]))[group]
    if isinstance(described, GroupDescription) and described.members:
        raise OptionError(
            f"the group {group} has members ({len(described.members)}), and a stream commits its progress to a group "
            "without any: give another name as kafka.group.id, or stop those consumers"
        )


def group_offsets(client: Blocking, group: str) -> dict[TopicPartition, int]:
    found = client.wait(ClusterAdmin(client.cluster).committed_offsets(group))
    return {partition: committed.offset for partition, committed in found.items()}


class GroupProgress:
    """Commits what a stream has done, while it looks for what comes next."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._committed: Offsets | None = None

    def begin(self, client: Blocking, done: Offsets) -> Future[None] | None:
        """Starts to commit the offsets up to which everything is done; None where nothing is new."""
        offsets = {partition: offset for partition, offset in done.items() if offset != LATEST}
        if offsets == self._committed or not offsets:
            return None
        self._committed = offsets
        return client.start(self._commit(client, offsets))

    async def _commit(self, client: Blocking, offsets: Offsets) -> None:
        for error in (await ClusterAdmin(client.cluster).alter_offsets(self._group, offsets)).values():
            if error is not None:
                raise error

    def finish(self, committing: Future[None] | None) -> None:
        if committing is None:
            return
        try:
            committing.result()
        except OttlaError as error:
            self._committed = None  # tried again with the next look
            _log.warning("the progress of the stream was not committed to the group %s: %s", self._group, error)
