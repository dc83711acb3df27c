"""Before the first fetch from a leader: what its history does not have is cut off.

Where responses to Fetch say that (from version 12 on, KIP-595), there is nothing to do. An older leader is asked where
the last epoch of each log ends there, again and again while the answer is an epoch that the log does not know
(KIP-101, KIP-279). What an answer means is decided by `replication.follower`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.broker.followed_partition import FollowedPartition, FollowerFailures
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.net.client import BrokerConnection
from ottla.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.replication.follower import AskEpochEnd, Follower, Pause, TruncateTo
from ottla.runtime.clock import Clock

logger = logging.getLogger(__name__)

FIRST_DIVERGENCE_VERSION: Final = 12  # of Fetch: from here on responses say where both histories part


class EpochQuestion(NamedTuple):
    """A partition that has to learn where one of its epochs ends for the leader."""

    partition: FollowedPartition
    follower: Follower
    epoch: int


class FollowerTruncation:
    """Of the partitions of one fetcher."""

    def __init__(
        self, node_id: int, is_here: Callable[[FollowedPartition], bool], failures: FollowerFailures, clock: Clock
    ) -> None:
        """`is_here`: whether a partition has not left the fetcher."""
        self._node_id = node_id
        self._is_here = is_here
        self._failures = failures
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    async def run(
        self, connection: BrokerConnection, partitions: Iterable[FollowedPartition], *, reports_divergence: bool
    ) -> None:
        """Returns once each of them may fetch, or pauses. `reports_divergence`: in responses to Fetch."""
        # Each round ends with a pause, or with one epoch less to ask for.
        while asked := self.questions(partitions, reports_divergence=reports_divergence):
            answers = await self._ask(connection, asked)
            for question in asked:
                self.handle_answer(question, answers.get(question.partition.name))

    def questions(self, partitions: Iterable[FollowedPartition], *, reports_divergence: bool) -> list[EpochQuestion]:
        """What has to be asked of the leader. Partitions that have nothing to ask by are truncated at once."""
        now = self._loop.time()
        asked = []
        for partition in partitions:
            follower = partition.follower
            if follower is None or not follower.is_ready(now) or not self._is_here(partition):
                continue
            match follower.before_fetch(partition.high_watermark, reports_divergence=reports_divergence):
                case AskEpochEnd(epoch):
                    asked.append(EpochQuestion(partition, follower, epoch))
                case TruncateTo() as step:
                    self._truncate_to_high_watermark(partition, follower, step)
        return asked

    async def _ask(
        self, connection: BrokerConnection, asked: Iterable[EpochQuestion]
    ) -> dict[TopicPartition, EpochEndOffset]:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, follower, epoch in asked:
            name = partition.name
            topic = topics.get(name.topic)
            if topic is None:
                topic = topics[name.topic] = OffsetForLeaderTopic(topic=name.topic, partitions=[])
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=name.partition, current_leader_epoch=follower.leader_epoch, leader_epoch=epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=list(topics.values()))
        response = await connection.request(request, OffsetForLeaderEpochResponse)
        return {
            TopicPartition(topic.topic, answer.partition): answer
            for topic in response.topics
            for answer in topic.partitions
        }

    def handle_answer(self, question: EpochQuestion, answer: EpochEndOffset | None) -> None:
        partition, follower, _ = question
        if partition.follower is not follower or not self._is_here(partition):
            return  # it left while the answer was on its way
        with self._failures.of(partition, follower):
            if answer is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader does not report where its epoch ends")
            log = partition.log
            step = follower.handle_epoch_end(
                answer, lambda epoch: log.epochs.end_of(epoch, log.end_offset), partition.high_watermark
            )
            match step:
                case Pause(reason):
                    logger.debug("%s: %s; will retry", partition.name, reason.name)
                    self._failures.pause(follower)
                case TruncateTo() if answer.end_offset < 0:
                    self._truncate_to_high_watermark(partition, follower, step)
                case TruncateTo(offset):
                    if offset < log.end_offset:
                        epoch, end_offset = answer.leader_epoch, answer.end_offset
                        logger.info(
                            "%s: the leader's epoch %d ends at %d; truncating", partition.name, epoch, end_offset
                        )
                    partition.truncate_before_fetch(follower, step, self._clock.now_ms())

    def _truncate_to_high_watermark(self, partition: FollowedPartition, follower: Follower, step: TruncateTo) -> None:
        with self._failures.of(partition, follower):
            if step.offset < partition.log.end_offset:
                logger.warning(
                    "%s: no leader epochs are known of its records; truncating to the high watermark, from %d to %d",
                    partition.name,
                    partition.log.end_offset,
                    step.offset,
                )
            partition.truncate_before_fetch(follower, step, self._clock.now_ms())
