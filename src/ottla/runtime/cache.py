"""The user's cache directory: what is fetched or made once and kept between runs, outside any repository."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Where things are kept between runs: `$OTTLA_CACHE`, else `ottla` in the user's cache directory."""
    if chosen := os.environ.get("OTTLA_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
