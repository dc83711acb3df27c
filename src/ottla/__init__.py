"""Ottla: a Kafka-compatible event streaming platform in Python, with data pipelines on Spark.

The clients are here, for programs without an event loop, and in `ottla.aio` for those with one, under the same names:

    with ottla.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        producer.send("orders", b"a record").result()

    with ottla.Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        for record in consumer:
            ...

    with ottla.Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)

Everything is imported when it is first asked for, so that `import ottla` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.admin.blocking import Admin as Admin
    from ottla.client.admin.configs import ConfigChange as ConfigChange
    from ottla.client.admin.configs import ConfigOperation as ConfigOperation
    from ottla.client.admin.configs import ConfigResource as ConfigResource
    from ottla.client.admin.topics import NewTopic as NewTopic
    from ottla.client.consumer.blocking import Consumer as Consumer
    from ottla.client.consumer.listeners import RebalanceListener as RebalanceListener
    from ottla.client.offsets import Isolation as Isolation
    from ottla.client.offsets import OffsetSpec as OffsetSpec
    from ottla.client.producer.blocking import Producer as Producer
    from ottla.client.values import ConsumerGroupMetadata as ConsumerGroupMetadata
    from ottla.client.values import ConsumerRecord as ConsumerRecord
    from ottla.client.values import OffsetAndMetadata as OffsetAndMetadata
    from ottla.client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from ottla.client.values import ProducerRecord as ProducerRecord
    from ottla.client.values import RecordMetadata as RecordMetadata
    from ottla.ids import TopicPartition as TopicPartition

    __version__: str

# Where each name of the package is.
_PLACES: Final = {
    "Admin": "ottla.client.admin.blocking",
    "ConfigChange": "ottla.client.admin.configs",
    "ConfigOperation": "ottla.client.admin.configs",
    "ConfigResource": "ottla.client.admin.configs",
    "Consumer": "ottla.client.consumer.blocking",
    "ConsumerGroupMetadata": "ottla.client.values",
    "ConsumerRecord": "ottla.client.values",
    "Isolation": "ottla.client.offsets",
    "NewTopic": "ottla.client.admin.topics",
    "OffsetAndMetadata": "ottla.client.values",
    "OffsetAndTimestamp": "ottla.client.values",
    "OffsetSpec": "ottla.client.offsets",
    "Producer": "ottla.client.producer.blocking",
    "ProducerRecord": "ottla.client.values",
    "RebalanceListener": "ottla.client.consumer.listeners",
    "RecordMetadata": "ottla.client.values",
    "TopicPartition": "ottla.ids",
}

__all__ = [  # noqa: PLE0604  # the names of a table
    "__version__",
    *_PLACES,
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes longer to import than most of Ottla

    try:
        return version("ottla")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.0.0"
