"""What the handlers of transactions share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.cluster.image import ClusterImage

Response = TypeVar("Response")


def without_fenced(code: ErrorCode, version: int, first_fenced_version: int) -> ErrorCode:
    """The code for a client of this version: earlier ones know one word for all stale producers."""
    if code == ErrorCode.PRODUCER_FENCED and version < first_fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def unknown_partitions(image: ClusterImage, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    return {name for name in partitions if image.partition(name) is None}
