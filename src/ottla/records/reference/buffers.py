"""Any bytes-like object as a view of its bytes, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


def byte_view(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" else view.cast("B")
