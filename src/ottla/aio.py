"""The clients for asyncio.

    async with ottla.aio.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivered = await producer.send("orders", b"a record")

    async with ottla.aio.Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        async for record in consumer:
            ...

    async with ottla.aio.Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)

The same names and settings as in `ottla`, whose clients wait in place of `await`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin as Admin
    from ottla.client.consumer.consumer import Consumer as Consumer
    from ottla.client.producer.producer import Producer as Producer

_PLACES: Final = {
    "Admin": "ottla.client.admin.admin",
    "Consumer": "ottla.client.consumer.consumer",
    "Producer": "ottla.client.producer.producer",
}

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found
