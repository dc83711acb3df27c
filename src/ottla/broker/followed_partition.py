"""A partition as those who fetch for it see it, and what becomes of one where something fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ottla.errors import ApiError, StorageError
from ottla.ids import TopicPartition
from ottla.net.client import ConnectionFailedError
from ottla.replication.follower import Fetched, Follower, TruncateTo
from ottla.storage.log import Log

logger = logging.getLogger(__name__)


class FollowedPartition(Protocol):
    """What a fetcher does to a partition. `follower` is None when this broker does not follow it any more."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> Any: ...

    @property
    def follower(self) -> Follower | None: ...

    @property
    def high_watermark(self) -> int: ...

    def append_fetched(self, follower: Follower, data: Fetched, now_ms: int) -> None: ...

    def truncate_to_leader(self, follower: Follower, epoch: int, end_offset: int, now_ms: int) -> None: ...

    def truncate_before_fetch(self, follower: Follower, step: TruncateTo, now_ms: int) -> None: ...

    def restart_at(self, follower: Follower, offset: int, now_ms: int, *, is_new_start: bool) -> None: ...

    @property
    def log(self) -> Log: ...


class FollowerFailures:
    """One partition that fails is tried again, or given up, and holds up no other."""

    def __init__(self, backoff_s: Callable[[], float]) -> None:
        """`backoff_s`: the longest pause, as it is set now."""
        self._backoff_s = backoff_s
        self._loop = asyncio.get_running_loop()

    def pause(self, follower: Follower) -> None:
        follower.pause(self._loop.time(), self._backoff_s())

    @contextmanager
    def of(self, partition: FollowedPartition, follower: Follower) -> Iterator[None]:
        """Does not let out what fails in there, unless the connection did."""
        try:
            yield
        except StorageError as error:
            logger.error("%s cannot be followed: %s", partition.name, error)
            follower.is_stopped = True  # the disk's failure is dealt with where it was found
        except ApiError as error:
            self.pause(follower)
            # Said more and more rarely: what a leader sends that does not fit may never do so.
            if follower.failures.bit_count() == 1:
                logger.warning("%s: %s; will retry", partition.name, error)
        except ConnectionFailedError:
            raise  # for all of them
        except Exception:  # whatever it is: the partitions behind it in the response are not held up by it
            logger.exception("%s: its records cannot be taken; will retry", partition.name)
            self.pause(follower)
