"""The table of clients and features, as a run of the matrix saw it and as it stands in docs/reference/clients.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.testing.clients import CLIENTS, FEATURES, SECURED_CLIENTS, SECURITY_FEATURES, Client

HOLDS: Final = "✓"
FAILS: Final = "✗"
LACKS: Final = "–"
NOT_RUN: Final = "?"

_INTRODUCTION: Final = """\
# Clients

Which Kafka clients work with Ottla, and which of their features have been tested. The tests write this page:
`python -m pytest tests/interop/clients --write-client-table`.

✓ works · ✗ does not · – the client has no such feature, reasons below · ? not run

*Produce* is tested with acks 0, 1 and all, and the batches on disk are checked for the requested codec. *Read what
every other client wrote* covers each codec, headers, tombstones and null keys.

Two clients are tested less than the others. KafkaJS consumes only as a member of a group, so the tests without a group
read through the Fetch call below its consumer, which is not a public interface. kcat writes to 20 of the 1,000
partitions, the others to all.
"""

_SECURITY: Final = """\
## Where brokers ask who somebody is

Every mechanism is tested with TLS and without. What has to be an *error* is one of the client, within its own time, and
nothing was written; a password or a token never reaches a broker whose certificate has expired or is for another host.
*Stream beyond the lifetime of a login*: the broker ends logins after 2.5 seconds (`connections.max.reauth.ms`; 12 for
KafkaJS, which logs in again for every request once less than ten are left). A client logs in again on its connection,
or comes back on a new one, while it writes, and loses nothing. *Right revoked in a stream*: whoever writes or reads
gets TOPIC_AUTHORIZATION_FAILED with the next request.
"""


class ClientTable:
    """Collects outcomes of tests by client and feature; a feature holds if all its tests passed."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], bool] = {}

    def note(self, client: str, feature: str, *, passed: bool) -> None:
        cell = (client, feature)
        self._outcomes[cell] = self._outcomes.get(cell, True) and passed

    def cell(self, client: Client, feature: str) -> str:
        if feature in client.lacks:
            return LACKS
        outcome = self._outcomes.get((str(client), feature))
        return NOT_RUN if outcome is None else HOLDS if outcome else FAILS

    def render(self) -> str:
        tables = [
            _INTRODUCTION,
            *self._rows(CLIENTS, FEATURES),
            "",
            _SECURITY,
            *self._rows(SECURED_CLIENTS, SECURITY_FEATURES),
        ]
        return "\n".join([*tables, "", "## What clients lack", "", *_reasons(), ""])

    def _rows(self, clients: Sequence[Client], features: Sequence[str]) -> list[str]:
        return [
            _row(["", *(f"{client.name}<br>{client.version}" for client in clients)]),
            _row(["---", *(":-:" for _ in clients)]),
            *(_row([feature, *(self.cell(client, feature) for client in clients)]) for feature in features),
        ]


def complete_table() -> ClientTable:
    """The table of a run in which everything passed."""
    table = ClientTable()
    for clients, features in ((CLIENTS, FEATURES), (SECURED_CLIENTS, SECURITY_FEATURES)):
        for client in clients:
            for feature in features:
                table.note(str(client), feature, passed=True)
    return table


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _reasons() -> list[str]:
    reasons = []
    for client in CLIENTS:
        by_reason: dict[str, list[str]] = {}
        for feature, reason in client.lacks.items():
            by_reason.setdefault(reason, []).append(feature)
        reasons += [f"- {client}: {', '.join(features)} ({reason})" for reason, features in by_reason.items()]
    return reasons
