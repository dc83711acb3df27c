"""Files that hold secrets: readable by their owner only, from the first byte on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o600


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file; whoever may not read the new one cannot have the old one open either."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with open(descriptor, "wb") as file:
        file.write(content)
