"""The table of clients and features, as a run of the matrix saw it and as it stands in docs/reference/clients.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.testing.clients import CLIENTS, FEATURES, Client

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
        lines = [
            _row(["", *(f"{client.name}<br>{client.version}" for client in CLIENTS)]),
            _row(["---", *(":-:" for _ in CLIENTS)]),
            *(_row([feature, *(self.cell(client, feature) for client in CLIENTS)]) for feature in FEATURES),
        ]
        return "\n".join([_INTRODUCTION, *lines, "", "## What clients lack", "", *_reasons(), ""])


def complete_table() -> ClientTable:
    """The table of a run in which everything passed."""
    table = ClientTable()
    for client in CLIENTS:
        for feature in FEATURES:
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
