"""Exactly-once delivery into topics: see docs/decisions/0016-exactly-once-into-topics.md."""
