"""What becomes of the transactions of a batch, given what the log of decisions says. Pure.

Every attempt of a task writes in a transaction of its own and leaves it open. One decision per batch says which of them
count; it is written down before any of them is ended, and never taken back. So whoever comes later, a second commit,
an abort after it or another driver, only carries out what stands there. The rules are here;
`tests/sim/test_spark_commit_protocol.py` tries them with every interleaving of crashes and retries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.prepared import Prepared

ID_PREFIX: Final = "ottla-spark"


@dataclass(frozen=True, slots=True)
class Writer:
    """Whose batches these are: `scope` is the query for as long as its checkpoint lives, `run` one life of it."""

    scope: str
    run: str

    @property
    def decisions_id(self) -> str:
        """The transactional id under which decisions are written: whoever introduces itself by it fences the others."""
        return f"{ID_PREFIX}.{self.scope}.decisions"

    @property
    def scope_prefix(self) -> str:
        """How the transactional ids of all tasks of the query begin."""
        return f"{ID_PREFIX}.{self.scope}.task."

    @property
    def run_prefix(self) -> str:
        """How those of this run begin."""
        return f"{self.scope_prefix}{self.run}."


@dataclass(frozen=True, slots=True)
class Decision:
    """The transactions of a batch that are committed. All others of that batch are aborted."""

    batch_id: int
    run: str
    transactions: tuple[Prepared, ...]

    def to_json(self) -> bytes:
        transactions = [
            [each.transactional_id, each.producer_id, each.producer_epoch, each.raises_epochs]
            for each in self.transactions
        ]
        return json.dumps({"version": 1, "batch": self.batch_id, "run": self.run, "commit": transactions}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """ValueError for what is not a decision, or one of a version that this code does not know."""
        try:
            loaded: Mapping[str, Any] = json.loads(text)
            if loaded["version"] != 1:
                raise ValueError(f"a decision of version {loaded['version']}: another version of Ottla wrote it")
            return cls(loaded["batch"], loaded["run"], tuple(Prepared(*each) for each in loaded["commit"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a decision: {text[:100]!r}") from error


@dataclass(frozen=True, slots=True)
class Steps:
    """What the driver does, in this order: write the decision down, commit, abort, and sweep."""

    decision: Decision | None  # None: there is nothing to decide
    commits: tuple[Prepared, ...]
    aborts: tuple[Prepared, ...]
    sweep_prefix: str | None  # open transactions whose id begins so were left behind; None: they stay


def is_decided(last: Decision | None, batch_id: int) -> bool:
    """Whether a batch needs no writing. Decisions come in the order of batches: the last one tells of all before it."""
    return last is not None and batch_id <= last.batch_id


def steps_of_commit(last: Decision | None, writer: Writer, batch_id: int, offered: Collection[Prepared]) -> Steps:
    """The batch is to be committed, perhaps again, with these transactions.

    Spark begins a batch after the one before it is committed, so a decision of an earlier batch was carried out.
    A run sweeps up after all others once; later it leaves them alone, for it may be the one that is outdated.
    """
    has_swept = last is not None and last.run == writer.run and last.batch_id < batch_id
    prefix = writer.run_prefix if has_swept else writer.scope_prefix
    if not is_decided(last, batch_id):
        decision = Decision(batch_id, writer.run, tuple(offered))
        return Steps(decision, decision.transactions, (), prefix)
    assert last is not None
    decided = last.transactions if last.batch_id == batch_id else ()
    return Steps(None, decided, _without(offered, last), prefix)


def steps_of_abort(last: Decision | None, batch_id: int, offered: Collection[Prepared]) -> Steps:
    """The batch has failed. If that was after its decision, the decision stands, and the next run carries it out."""
    return Steps(None, (), _without(offered, last) if is_decided(last, batch_id) and last else tuple(offered), None)


def _without(offered: Collection[Prepared], last: Decision) -> tuple[Prepared, ...]:
    return tuple(each for each in offered if each not in last.transactions)
