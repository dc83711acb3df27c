"""What a query does when records that it was to read are gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.errors import OttlaError

_log = logging.getLogger(__name__)


class DataLossError(OttlaError):
    """Records that were to be read are no longer there, and the query is not to go on without them."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            f"records are lost: {'; '.join(losses)}. Retention or a deletion was faster than the query. Set "
            "failOnDataLoss to false to go on with what is there, or start anew with another checkpoint"
        )


def bear(losses: Sequence[str], fail_on_data_loss: bool) -> None:
    """Fails with what is lost, or says so and lets the query go on."""
    if fail_on_data_loss:
        raise DataLossError(losses)
    _log.warning("records are lost: %s", "; ".join(losses))
