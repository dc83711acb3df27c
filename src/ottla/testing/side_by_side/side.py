"""One of the two brokers: what is asked of it, and what it answers, written down."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_requests import create_topic, list_offsets
from ottla.testing.side_by_side.transcript import Transcript
from ottla.testing.waiting import wait_until

Note = Callable[[Any], Any]


class Asked(NamedTuple):
    """A question that waits for its answer."""

    question: str
    client: RawClient
    correlation_id: int


class Side:
    """A conversation with one broker. `prefix` begins the names of all topics and groups that are its own."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._prefix = prefix
        self._clients: list[RawClient] = []
        self._settled_count = 0
        self.transcript = Transcript()
        self.client = self.connect()

    def connect(self) -> RawClient:
        """One more connection, for conversations in which somebody else waits meanwhile."""
        self._clients.append(RawClient(self._bootstrap_servers))
        return self._clients[-1]

    def name(self, name: str) -> str:
        """Every conversation has groups and topics of its own."""
        return f"{self._prefix}-{name}"

    def own_name(self, name: str) -> str:
        """What `name` was given."""
        return name.removeprefix(f"{self._prefix}-")

    # -- what is written down ------------------------------------------------------------------------------------------

    def ask(self, request: object, version: int, *, client: RawClient | None = None, note: Note | None = None) -> Any:
        """Asks and writes the answer down, or what `note` makes of it; a closed connection is an answer too."""
        return self.receive(self.send(request, version, client=client), note=note)

    def send(self, request: object, version: int, *, client: RawClient | None = None) -> Asked:
        """Asks, and leaves the answer for `receive`."""
        client = client or self.client
        sent = client.send(request, version)
        return Asked(f"{type(request).__name__} v{version}", client, sent.correlation_id)

    def receive(self, asked: Asked, *, note: Note | None = None) -> Any:
        """Writes down the answer to a request that was sent before."""
        try:
            answer, correlation_id = asked.client.receive()
        except ConnectionEnded:
            assert asked.client is self.client, (
                f"only the first connection is replaced; {asked.question} closed another"
            )
            self.transcript.add(asked.question, "closed")
            self.client = self.connect()
            return None
        assert correlation_id == asked.correlation_id, "answers came out of order"
        self.transcript.add(asked.question, answer if note is None else note(answer))
        return answer

    def note(self, what: str, *seen: Any) -> None:
        """Writes down what a conversation found out in its own way."""
        self.transcript.add(what, seen)

    # -- what is often wanted first ------------------------------------------------------------------------------------

    def new_topic(self, name: str, partitions: int = 1, **config: str) -> tuple[str, UUID]:
        """A topic that is there, its name and id: Kafka answers before its brokers know it."""
        full = self.name(name)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.client.ask(create_topic(full, partitions, config=settings), 7).topics[0]
        assert not made.error_code, made
        wait_until(
            lambda: all(
                not self.client.ask(list_offsets(full, -1, partition=index), 7).topics[0].partitions[0].error_code
                for index in range(partitions)
            )
        )
        return full, made.topic_id

    def settle(self) -> None:
        """Kafka's controller answers before its broker knows. What is made after a change is known after it as well.

        Twice: of what one round of news brings to the broker, topics come before settings.
        """
        for _ in range(2):
            self._settled_count += 1
            self.new_topic(f"settled-{self._settled_count}")

    def new_producer_id(self) -> int:
        """Kafka has none to give at first; ids below 1 could not be told apart from none."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        wait_until(lambda: self.client.ask(request, 4).producer_id > 0)
        return int(self.client.ask(request, 4).producer_id)

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
