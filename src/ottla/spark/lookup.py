"""What the driver asks brokers: which partitions there are, where they start and end, where a time is.

Everything here is asked each time. What is read from a partition is the executors' affair (`reading`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.client.fetching import Fetcher, FetchOptions
from ottla.client.metadata import ClusterView
from ottla.client.offsets import FoundOffset, OffsetSpec, list_offsets
from ottla.client.retrying import Deadline
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.group_progress import check_group_is_free, group_offsets
from ottla.spark.offsets import EARLIEST, LATEST, OffsetRange, Offsets
from ottla.spark.option_reader import OptionError
from ottla.spark.options import Bound, NoMatch, SourceOptions

_log = logging.getLogger(__name__)

BEHIND_PAUSES_S: Final = (0.1, 0.3, 1.0)
VANISHED_AFTER_S: Final = 2.0  # partitions whose leaders do not answer for so long are looked for again
_NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class MissingTopicsError(OttlaError):
    """What is to be read does not exist."""


def is_gone(error: TimedOutError) -> bool:
    """Whether what was tried in vain is not there, as opposed to a broker that does not answer."""
    return isinstance(error.cause, ApiError) and error.cause.code in _NOT_THERE


class Lookup:
    """Answers the questions of one query about its topics."""

    def __init__(self, client: Blocking, options: SourceOptions) -> None:
        self._client = client
        self._options = options

    def partitions(self, known: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """The partitions that the query reads, as they are now. Topics in `known` may be gone; others must be there."""
        topics = self._options.topics
        names = topics.names or sorted({partition.topic for partition in topics.partitions})
        seen = {partition.topic for partition in known}
        view = self._client.wait(self._client.cluster.find_topics(None if topics.pattern else names, seen))
        if topics.pattern:
            is_found_in = re.compile(topics.pattern).search
            names = tuple(name for name, topic in view.topics.items() if is_found_in(name) and not topic.is_internal)
        else:
            self._check_topics(names, view, seen)
        there = [
            TopicPartition(name, partition.partition)
            for name in names
            if name in view.topics
            for partition in view.topics[name].partitions
        ]
        if topics.partitions:
            absent = set(topics.partitions) - set(there) - set(known)
            if absent:
                raise MissingTopicsError(f"{_listed(absent)} of assign does not exist on {self._where}")
            there = [partition for partition in there if partition in set(topics.partitions)]
        return sorted(there)

    def check_group(self) -> None:
        """Before data moves: whether the group that the stream reports to is free."""
        if self._options.group is not None:
            check_group_is_free(self._client, self._options.group)

    def _check_topics(self, names: Iterable[str], view: ClusterView, known: Collection[str]) -> None:
        missing = [name for name in names if name not in view.topics and name not in known]
        for name in missing:
            error = view.errors.get(name)
            if error is not None and error.code not in _NOT_THERE:
                raise error
        if missing:
            plural = "topics" if len(missing) > 1 else "topic"
            raise MissingTopicsError(
                f"the {plural} {', '.join(missing)} does not exist on {self._where}: create it, or change the options"
            )

    @property
    def _where(self) -> str:
        return self._options.bootstrap_servers

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._at(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last record that may be read: with read_committed, what lies before open transactions."""
        return self._at(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))

    def latest_after(self, begin: Offsets) -> dict[TopicPartition, int]:
        """The ends of all partitions, as a stream that was read up to `begin` finds them.

        An end before `begin` is most often a new leader that is about to learn more: it is asked again, a few times.
        """
        found = self._present_ends(begin)
        for pause_s in BEHIND_PAUSES_S:
            behind = [partition for partition, end in found.items() if end < begin.get(partition, 0)]
            if not behind:
                break
            time.sleep(pause_s)
            found |= self.latest(behind)
        return found

    def _present_ends(self, begin: Offsets) -> dict[TopicPartition, int]:
        """A topic may go after it was seen, and its leaders are asked in vain: then it is looked for again.

        A stream that runs has time: it outlasts brokers that are away for several times what one question may take.
        """
        settings = self._options.client
        deadline = time.monotonic() + settings.offset_attempts_max * settings.timeout_ms / 1000
        while True:
            try:
                return self._present_ends_now(begin)
            except TimedOutError as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("the stream waits for its brokers: %s", error)

    def _present_ends_now(self, begin: Offsets) -> dict[TopicPartition, int]:
        # Nearly always the partitions are those of the last batch, so both questions are asked at once.
        of_known = self._client.start(self._ends(begin))
        try:
            partitions = self.partitions(begin)
            if partitions != sorted(begin) or (of_known.done() and of_known.exception() is not None):
                # Also where the first question failed long ago, while the second waited for a broker to come back.
                found = self._client.wait(self._ends(partitions))
            else:
                found = of_known.result()
            return {partition: found[partition].offset for partition in partitions}
        finally:
            of_known.cancel()

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FoundOffset]:
        latest = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        deadline = Deadline.after(VANISHED_AFTER_S)
        return await list_offsets(self._client.cluster, latest, self._options.client.isolation, deadline)

    def wait_for_records(self, client: Blocking, offsets: Offsets, wait_ms: int) -> None:
        """Until some broker has a record at these offsets, or the time is over."""
        options = FetchOptions(
            isolation=self._options.client.isolation, max_wait_ms=wait_ms, max_bytes=1, partition_max_bytes=1
        )

        async def wait() -> None:
            async with Fetcher(client.cluster, offsets, options=options) as fetcher:
                await fetcher.next()

        if offsets:
            try:
                client.wait(wait())
            except ApiError as error:
                # A partition or a broker that went, or a log that lost records: the next look at the ends tells.
                _log.info("waiting for records ended early: %s", error)
        else:
            time.sleep(wait_ms / 1000)

    def since(self, timestamp_ms: int, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What is left of the ranges without the records before the first one that is as late as the time given."""
        partitions = {each.partition for each in ranges}
        first = self._at(dict.fromkeys(partitions, timestamp_ms))
        return [
            OffsetRange(each.partition, max(each.start_offset, first[each.partition]), each.end_offset)
            for each in ranges
            if first[each.partition] != LATEST and first[each.partition] < each.end_offset
        ]

    def _at(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset at a place or time; -1 where no record is that late."""
        if not places:
            return {}
        isolation = self._options.client.isolation
        found = self._client.wait(list_offsets(self._client.cluster, places, isolation))
        return {partition: each.offset for partition, each in found.items()}

    def made_concrete(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """The same offsets, with the present end of the log in place of LATEST."""
        ends = self.latest(partition for partition, offset in offsets.items() if offset == LATEST)
        return {**offsets, **ends}

    def resolve(self, bound: Bound, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition at a bound; LATEST stays, because it is another one each time it is asked."""
        if bound.is_group:
            assert self._options.group is not None
            committed = group_offsets(self._client, self._options.group)
            return self._with_earliest({partition: committed.get(partition, EARLIEST) for partition in partitions})
        if bound.timestamp_ms is not None:
            return self._by_time(bound, dict.fromkeys(partitions, bound.timestamp_ms))
        if bound.timestamps is not None:
            _check_covers(bound, bound.timestamps, partitions)
            return self._by_time(bound, bound.timestamps)
        if bound.offsets is not None:
            _check_covers(bound, bound.offsets, partitions)
            offsets = dict(bound.offsets)
        else:
            offsets = dict.fromkeys(partitions, bound.place)
        return self._with_earliest(offsets)

    def _with_earliest(self, offsets: Offsets) -> dict[TopicPartition, int]:
        earliest = self.earliest(partition for partition, offset in offsets.items() if offset == EARLIEST)
        return {**offsets, **earliest}

    def _by_time(self, bound: Bound, timestamps: Offsets) -> dict[TopicPartition, int]:
        places = {partition: place for partition, place in timestamps.items() if place < 0}
        found = self._at({partition: time_ms for partition, time_ms in timestamps.items() if partition not in places})
        without = sorted(partition for partition, offset in found.items() if offset == LATEST)
        is_start = bound is self._options.starting
        if without and is_start and self._options.no_match is NoMatch.ERROR:
            raise OptionError(
                f"no record of {_listed(without)} is as recent as {bound.option}; give an earlier time, or set "
                "startingOffsetsByTimestampStrategy to latest"
            )
        return found | self._with_earliest(places)


def _check_covers(bound: Bound, given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> None:
    missing, unknown = set(partitions) - set(given), set(given) - set(partitions)
    if missing:
        raise OptionError(
            f"{bound.option} must list every partition, and {_listed(missing)} is missing; "
            "-2 means earliest and -1 latest"
        )
    if unknown:
        raise OptionError(f"{bound.option} names {_listed(unknown)}, which is not read by this query")


def _listed(partitions: Iterable[TopicPartition]) -> str:
    ordered = sorted(partitions)
    shown = ", ".join(map(str, ordered[:5]))
    return shown if len(ordered) <= 5 else f"{shown} and {len(ordered) - 5} more"
