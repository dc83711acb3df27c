"""Settings of a broker about quotas of clients. The quotas themselves are in the metadata store."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.setting import Kind, setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
class QuotaSettings:
    """Over how long the rates of quotas are averaged."""

    quota_window_num: int = setting(Kind.INT, 11, "The number of windows of client quotas.", minimum=1)
    quota_window_size_seconds: int = setting(Kind.INT, 1, "The length of such a window.", minimum=1)
    controller_quota_window_num: int = setting(
        Kind.INT,
        11,
        "The number of windows of `controller_mutation_rate`: as many changes may come at once as they give together.",
        minimum=1,
    )
    controller_quota_window_size_seconds: int = setting(Kind.INT, 1, "The length of such a window.", minimum=1)
