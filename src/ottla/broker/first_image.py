"""What clients learn of the cluster from a broker that has just started.

A broker serves before it has heard of its controller: while an earlier run of it is still registered, and until the
controller has seen its own registration. Who asks it about the cluster then waits, but not for long: another broker
knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.cluster.image import ClusterImage
from ottla.runtime.signal import Signal

WAIT_S: Final = 2.0


async def first_image(image: Callable[[], ClusterImage], changed: Signal) -> ClusterImage:
    """The image that a broker has; without brokers in it where there is none yet."""
    now = asyncio.get_running_loop().time
    deadline = now() + WAIT_S
    while not image().brokers and (left_s := deadline - now()) > 0:
        await changed.wait(left_s)
    return image()
