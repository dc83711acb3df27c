"""What a query does when records that it should read have been deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.errors import OttlaError

_log = logging.getLogger(__name__)


class DataLossError(OttlaError):
    """Records that a query should read no longer exist, and it must not continue without them."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(
            f"records are lost: {'; '.join(losses)}. They were deleted before the query read them. Set "
            "failOnDataLoss to false to continue with what is left, or start again with another checkpoint"
        )


def report_losses(losses: Sequence[str], fail_on_data_loss: bool) -> None:
    """Raises DataLossError, or logs a warning and lets the query continue."""
    if fail_on_data_loss:
        raise DataLossError(losses)
    _log.warning("records are lost: %s", "; ".join(losses))
