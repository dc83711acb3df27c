"""Where to start without a committed offset: `earliest`, `latest`, `none` or `by_duration:PnDTnHnMn.nS` (KIP-1106)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import SettingsError
from ottla.client.offsets import OffsetSpec

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
# Names that other clients have for the same.
_ALIASES: Final = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """`duration_ms` is how far back a policy by duration goes."""

    name: str
    duration_ms: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def is_none(self) -> bool:
        return self.name == "none"

    def timestamp(self, now_ms: int) -> int:
        """What ListOffsets is asked for."""
        assert not self.is_none, "there is nothing to look up"
        if self.duration_ms is not None:
            return max(0, now_ms - self.duration_ms)
        return OffsetSpec.EARLIEST if self.name == "earliest" else OffsetSpec.LATEST


EARLIEST: Final = ResetPolicy("earliest")
LATEST: Final = ResetPolicy("latest")
NONE: Final = ResetPolicy("none")


def parse_reset(text: str) -> ResetPolicy:
    name = _ALIASES.get(text.strip().lower(), text.strip())
    for policy in (EARLIEST, LATEST, NONE):
        if name.lower() == policy.name:
            return policy
    if name.lower().startswith(_BY_DURATION):
        return ResetPolicy(name, parse_duration_ms(name[len(_BY_DURATION) :]))
    raise SettingsError(
        "auto_offset_reset",
        f"auto_offset_reset cannot be {text!r}: earliest, latest, none or by_duration:PnDTnHnMn.nS is wanted",
    )


def parse_duration_ms(text: str) -> int:
    """An ISO 8601 duration of days, hours, minutes and seconds, as Java reads it."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.upper().endswith("T"):
        raise SettingsError(
            "auto_offset_reset", f"{text!r} is not a duration; write PnDTnHnMn.nS, such as PT1H30M or P7D"
        )
    parts = {name: float(value) if value else 0.0 for name, value in found.groupdict().items()}
    hours = parts["days"] * 24 + parts["hours"]
    return round(((hours * 60 + parts["minutes"]) * 60 + parts["seconds"]) * 1000)
