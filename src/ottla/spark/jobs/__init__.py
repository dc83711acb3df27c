"""Ready jobs on topics: mirror them to another cluster, replay a part of one, audit them. For tables: `tables`."""

from __future__ import annotations

from ottla.spark.jobs.audit import PartitionAudit, audit_segments, audit_topics
from ottla.spark.jobs.mirror import mirror
from ottla.spark.jobs.replay import Range, replay

__all__ = ["PartitionAudit", "Range", "audit_segments", "audit_topics", "mirror", "replay"]
