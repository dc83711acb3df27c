"""Renders `docs/reference/api-support.md` from the message classes and the table of handlers.

python -m ottla.broker.reference > docs/reference/api-support.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.broker.handlers import CLUSTER_HANDLERS, HANDLERS
from ottla.broker.handlers.api_versions import advertised
from ottla.protocol.coordinator_records import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordType,
)
from ottla.protocol.messages import embedded
from ottla.protocol.schema import Versions, message_schema_of, messages_in
from ottla.protocol.versions import API_TABLE, Api

_INTRODUCTION = """\
# API support

Which APIs an Ottla broker serves, and which other messages its protocol package can encode and decode. This page is
generated: `python -m ottla.broker.reference`.

*Served* are the versions that a broker announces and answers, some only in a cluster (with `zookeeper.connect`); a
request of any other API or version closes the connection, as in Kafka. *Readable* are the versions that can be encoded
and decoded, from the oldest of Kafka 3.9 to the newest of 4.3. *Kafka 4.3* are the versions that a broker of Kafka 4.3
announces. *Flexible* is the first version with compact lengths and tagged fields.
"""


# What Kafka 4.3 announces and no broker of ours serves, by API key.
NOT_SERVED: Final[dict[int, str]] = {
    **dict.fromkeys((55, 80, 81), "the metadata is kept by one broker alone or by ZooKeeper: there is no KRaft quorum"),
    **dict.fromkeys((71, 72), "client telemetry: Kafka too announces it only with a plugin that receives the metrics"),
    **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), "there are no share groups here"),
    **dict.fromkeys(
        (88, 89), "there are no streams groups here: Kafka Streams works with a classic group, as it does by default"
    ),
}


def api_support() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    served = _served(HANDLERS)
    served |= {key: f"{versions} (cluster)" for key, versions in _served(CLUSTER_HANDLERS).items()}
    yield _INTRODUCTION
    yield "## Requests and responses\n"
    yield from _table(
        ("Key", "API", "Served", "Readable", "Kafka 4.3", "Flexible", "Listeners", "What it does"),
        (_api_row(api, served.get(api.key, "–")) for api in API_TABLE.values()),
    )
    yield "\n## Not served\n"
    yield "What a broker of Kafka 4.3 announces to clients and an Ottla broker, alone or in a cluster, does not.\n"
    yield from _table(
        ("Key", "API", "Why not"),
        ((str(key), API_TABLE[key].name, reason) for key, reason in NOT_SERVED.items()),
    )
    yield "\n## Records of coordinators\n"
    for title, records in (
        ("`__consumer_offsets`", GROUP_RECORDS),
        ("`__transaction_state`", TRANSACTION_RECORDS),
        ("`__share_group_state`", SHARE_STATE_RECORDS),
    ):
        yield f"### {title}\n"
        yield from _table(
            ("Type", "Key", "Value", "Value versions", "Flexible"),
            (_record_row(records[number]) for number in sorted(records)),
        )
        yield ""
    yield "## Inside messages, records and files\n"
    yield from _table(("Name", "Versions", "Flexible", "What it is"), _embedded_rows())


def _served(keys: Iterable[int]) -> dict[int, str]:
    return {one.api_key: str(Versions(one.min_version, one.max_version)) for one in advertised(list(keys))}


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _api_row(api: Api, served: str) -> tuple[str, ...]:
    return (
        str(api.key),
        api.name,
        served,
        str(api.versions),
        str(api.advertised or "–"),
        _flexible(api.flexible_since),
        ", ".join(api.listeners),
        _first_line(api.request),
    )


def _record_row(record: RecordType) -> tuple[str, ...]:
    schema = message_schema_of(record.value)
    return (
        str(record.number),
        record.key.__name__,
        record.value.__name__,
        str(schema.versions),
        _flexible(schema.flexible_since),
    )


def _embedded_rows() -> Iterator[tuple[str, ...]]:
    for cls in messages_in(vars(embedded)):
        schema = message_schema_of(cls)
        yield cls.__name__, str(schema.versions), _flexible(schema.flexible_since), _first_line(cls)


def _flexible(since: int | None) -> str:
    return "–" if since is None else str(since)


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    print(api_support(), end="")
