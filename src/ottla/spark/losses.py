"""What a query does when records that it was to read are gone."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import OttlaError


class DataLossError(OttlaError):
    """Records that were to be read are no longer there, and the query is not to go on without them."""

    def __init__(self, losses: Iterable[str]) -> None:
        super().__init__(
            f"records are lost: {'; '.join(losses)}. Retention or a deletion was faster than the query. Set "
            "failOnDataLoss to false to go on with what is there, or start anew with another checkpoint"
        )
