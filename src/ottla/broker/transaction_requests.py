"""What the handlers of transactions share."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

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


async def waited_for(answer: Response | Coroutine[Any, Any, Response]) -> Response:
    """An answer that may be there at once, for whoever has to wait anyhow."""
    if type(answer) is CoroutineType:
        waited: Response = await answer
        return waited
    return answer  # type: ignore[return-value]


def unknown_partitions(image: ClusterImage, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    return {name for name in partitions if image.partition(name) is None}
