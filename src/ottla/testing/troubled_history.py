"""A history that clients record while a cluster is in trouble, and the check that nothing in it is impossible."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ottla.testing.clients import CLIENTS
from ottla.testing.history import History, Outcome
from ottla.testing.history_check import check
from ottla.testing.history_workload import (
    EVERYBODY,
    JavaSender,
    OttlaSender,
    Reader,
    StartProcess,
    Watcher,
    play,
)

COMMITTED_MIN: Final = 5
ENOUGH_S: Final = (
    300.0  # more than was asked for: on a busy machine few transactions end, and a run without says nothing
)
FINDINGS_MAX: Final = 20
JAVA_CLIENT: Final = CLIENTS[0]


@dataclass(frozen=True)
class TroubledClients:
    """Clients of librdkafka, Java and our own that send and poll, plain and in transactions."""

    bootstrap_servers: str
    seed: int
    drivers: Path  # where the programs of other clients are
    ours: Mapping[str, str] = field(default_factory=dict)  # settings of our own
    librdkafka: Mapping[str, Any] = field(default_factory=dict)
    has_java: bool = True

    def kinds(self) -> list[StartProcess]:
        kinds: list[StartProcess] = [*EVERYBODY, partial(OttlaSender, login=self.ours)]
        if self.has_java and not JAVA_CLIENT.missing_programs:
            kinds.append(partial(JavaSender, command=JAVA_CLIENT.command(self.drivers)))
        return kinds


def play_in_trouble(
    clients: TroubledClients,
    harm: Callable[[], str],
    settle: Callable[[], None],
    *,
    run_s: float,
    path: Path,
    harms_min: int = 0,
) -> None:
    """Lets clients work while `harm` is called again and again; no response that they got may be wrong then.

    `harm` does one bad thing, ends it, and returns what that was. `settle` waits until the cluster is well. The history
    is kept at `path`.
    """
    kinds = clients.kinds()
    history = History()
    harms: list[str] = []

    def is_over(started: float) -> bool:
        is_enough = history.transactions()["ok"] >= COMMITTED_MIN
        return len(harms) >= harms_min and time.monotonic() >= started + run_s + (0.0 if is_enough else ENOUGH_S)

    def trouble() -> None:
        started = time.monotonic()
        while not is_over(started):
            harms.append(harm())
            print(f"{time.monotonic() - started:.1f} s: {harms[-1]} is over", flush=True)
        settle()

    play(history, clients.bootstrap_servers, clients.seed, trouble, kinds, clients.librdkafka)
    history.save(path)
    counts = history.transactions()
    print(f"{len(history.operations)} operations, transactions {counts}")
    assert counts["ok"] >= COMMITTED_MIN, counts
    _check_that_all_could_send(history, kinds)
    findings = check(history)
    assert findings == [], "\n".join(map(str, findings[:FINDINGS_MAX]))


def _check_that_all_could_send(history: History, kinds: Sequence[StartProcess]) -> None:
    senders = {number for number, kind in enumerate(kinds) if kind not in (Reader, Watcher)}
    assert senders <= {each.process for each in history.operations if each.sends and each.outcome is Outcome.OK}
