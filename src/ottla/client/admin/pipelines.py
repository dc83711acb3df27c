"""The pipelines of a cluster, by what they report of themselves."""

from __future__ import annotations

from ottla.client.admin.calls import AdminCalls
from ottla.client.pipelines import PipelineReport, read_reports


class PipelineCalls(AdminCalls):
    """The part of the admin client for pipelines."""

    async def list_pipelines(self, timeout_s: float | None = None) -> list[PipelineReport]:
        """The last report of every pipeline, by name; none where no pipeline has ever reported."""
        return await read_reports(self._cluster, self._deadline(timeout_s))
