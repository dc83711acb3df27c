"""Plays a history to both brokers, a step at a time: what one answers, the other must answer, before the next step."""

from __future__ import annotations

import logging
import select
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from ottla.errors import OttlaError
from ottla.protocol.codec import decode
from ottla.protocol.frames import framed
from ottla.protocol.headers import API_VERSIONS_KEY, decode_response_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from ottla.protocol.schema import schema_of
from ottla.protocol.versions import API_TABLE
from ottla.testing.differential.allowed import Allowed, Case, permission
from ottla.testing.differential.comparing import CLOSED, OPEN, UNANSWERED, AnswerTranscript, Difference, differences
from ottla.testing.differential.drawing import CONNECTIONS
from ottla.testing.differential.history import History, Step
from ottla.testing.differential.references import Known, resolved
from ottla.testing.differential.values import TOPICS, TRANSACTIONAL_IDS
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_requests import creatable, create_topic, fetch
from ottla.testing.raw_transactions import find_coordinator
from ottla.testing.side_by_side.brokers import Brokers
from ottla.testing.side_by_side.groups import wait_for_group_coordinator
from ottla.testing.waiting import wait_until

ANSWER_S: Final = 5.0  # some requests Kafka never answers, which is known
SLOW_ANSWER_S: Final = 120.0  # of a machine that is busy with other things as well
# How long an answer that may be parked is waited for where neither side has it; nothing depends on its length.
PARK_S: Final = 0.15
PARKING_APIS: Final = (11, 14)  # JoinGroup, SyncGroup
METADATA_APIS: Final = (19, 20, 33, 37, 44)  # what they change, Kafka's broker learns after the answer
TRANSACTION_APIS: Final = (22, 26)  # what they end, Kafka carries out after the answer
TOPIC_RESOURCE: Final = 2
STOCK: Final = 12


@dataclass(slots=True)
class Exchange:
    """A step as it was played, with what both sides answered, and where that differs."""

    number: int
    step: Step
    kafka: Any = None
    ours: Any = None
    differences: list[Difference] = field(default_factory=list)
    permissions: list[Allowed] = field(default_factory=list)
    complaint: str = ""

    @property
    def signature(self) -> str:
        """What kind of difference it is: the API and the fields."""
        kinds = sorted({one.kind for one in self.differences})
        return f"{self.step.api.name}: {', '.join(kinds) or self.complaint.splitlines()[-1]}"


@dataclass(slots=True)
class Play:
    """How a history went, up to the first difference that is not allowed."""

    history: History
    exchanges: list[Exchange] = field(default_factory=list)
    bad: Exchange | None = None


class Side:
    """The connections of one history to one broker, and the responses that it got."""

    def __init__(self, bootstrap_servers: str, prefix: str, topic_ids: dict[str, UUID]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.known = Known(prefix, topic_ids=dict(topic_ids))
        self.transcript = AnswerTranscript(self.known)
        self.clients = [RawClient(bootstrap_servers) for _ in range(CONNECTIONS)]
        self._correlation_id = 0
        self._requests: dict[int, tuple[Any, int, int]] = {}

    def send(self, step: Step) -> Any:
        """Sends a step; what was sent is returned."""
        request = resolved(step.request, self.known)
        self._correlation_id += 1
        frames = [step.frame(request, self._correlation_id)]
        expected = step.api_key, step.version if step.header_version is None else step.header_version
        if isinstance(request, ProduceRequest) and request.acks == 0 and step.is_sound:
            # It is not answered: the next request on the connection tells whether that is still open.
            expected = API_VERSIONS_KEY, 0
            frames.append(Step(API_VERSIONS_KEY, 0, ApiVersionsRequest()).frame(ApiVersionsRequest(), 0))
        self._requests[step.connection] = (request, *expected)
        self.transcript.asked_names = set(_strings(request))
        # Where the connection has ended there is no answer either, which `receive` tells.
        with suppress(ConnectionResetError, BrokenPipeError):
            self.clients[step.connection].socket.sendall(b"".join(map(framed, frames)))
        return request

    def is_ready(self, connection: int, wait_s: float) -> bool:
        return any_readable([self.clients[connection].socket], wait_s)

    def receive(self, connection: int) -> Any:
        """The answer on a connection, in plain values; what it tells is learned."""
        request, key, version = self._requests[connection]
        try:
            frame = self.clients[connection].receive_frame()
        except ConnectionEnded:
            self.clients[connection].close()
            self.clients[connection] = RawClient(self._bootstrap_servers)
            return CLOSED
        answer = _decoded(frame, key, version)
        if isinstance(answer, bytes):
            return f"cannot be read: {answer.hex()}"
        if type(request) is not API_TABLE[key].request:
            return OPEN
        self.known.learn(request, answer)
        return self.transcript.plain(answer)

    def close(self) -> None:
        if self.known.session.id:
            # Brokers keep a limited number of them.
            self.clients[0].close()
            with RawClient(self._bootstrap_servers) as client:
                client.ask(fetch("", partitions=(), session_id=self.known.session.id, session_epoch=-1), 12)
        for client in self.clients:
            client.close()


def any_readable(sockets: list[socket.socket], wait_s: float) -> bool:
    """Whether there is something to read on one of them within the time."""
    poll = select.poll()  # select knows no descriptors beyond 1023, and a broker in this process has many
    for one in sockets:
        poll.register(one, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def _decoded(frame: bytes, key: int, version: int) -> Any:
    """The answer, or its bytes where they cannot be read. A refused ApiVersions is answered in version 0."""
    versions = (version, 0) if key == API_VERSIONS_KEY else (version,)
    for one in versions:
        try:
            _, position = decode_response_header(frame, key, one)
            return decode(API_TABLE[key].response, frame, one, position)
        except (OttlaError, KeyError):
            continue
    return frame


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [one for element in value for one in _strings(element)]
    if hasattr(type(value), "__schema__"):
        return [one for each in schema_of(type(value)).fields for one in _strings(getattr(value, each.name))]
    return []


class Complaints(logging.Handler):
    """What our broker logs as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self._records.append(record)

    def take(self) -> str:
        taken, self._records = self._records, []
        return "\n".join(self.format(record) for record in taken)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logging.getLogger().removeHandler(self)


class Attendant:
    """Makes topics for histories on one broker, and waits until what was changed is known everywhere in it."""

    def __init__(self, bootstrap_servers: str, run: str) -> None:
        self._client = RawClient(bootstrap_servers)
        self._barrier = f"{run}-barrier"
        self._rounds = 0
        assert not self._client.ask(create_topic(self._barrier), 7).topics[0].error_code
        wait_for_group_coordinator(self._client, "any")
        find_coordinator(self._client, "any")
        # Kafka has none to give at first; ids below 1 could not be told apart from none.
        introduction = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        wait_until(lambda: self._client.ask(introduction, 4).producer_id > 0)
        self.settle()

    def settle(self) -> None:
        """Kafka's controller answers before its broker knows; of one round of news, topics come before settings."""
        for _ in range(2):
            self._rounds += 1
            value = str(1_000_000_000 + self._rounds)
            config = IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", config_operation=0, value=value)
            changed = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=self._barrier, configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
            wait_until(lambda: not self._client.ask(request, 1).responses[0].error_code)  # noqa: B023
            wait_until(lambda: self._barrier_value() == value)  # noqa: B023

    def _barrier_value(self) -> str | None:
        wanted = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._barrier, configuration_keys=["retention.ms"]
        )
        answer = self._client.ask(DescribeConfigsRequest(resources=[wanted]), 4)
        return str(answer.results[0].configs[0].value) if answer.results[0].configs else None

    def make(self, prefixes: list[str]) -> dict[str, UUID]:
        """The topics that every history finds, for several histories: ids by name."""
        topics = [
            creatable(f"{prefix}-{name}", partitions, config=config)
            for prefix in prefixes
            for name, (partitions, config) in TOPICS.items()
        ]
        answer = self._client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 7)
        assert not any(topic.error_code for topic in answer.topics), answer
        self.settle()
        return {topic.name: topic.topic_id for topic in answer.topics}

    def drop(self, names: list[str]) -> None:
        states = [DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in names]
        self._client.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6)

    def rest(self, transactional_ids: list[str]) -> None:
        """Until no transaction of these ids is on its way to its end."""

        def is_at_rest() -> bool:
            answer = self._client.ask(DescribeTransactionsRequest(transactional_ids=transactional_ids), 0)
            return not any(state.transaction_state.startswith("Prepare") for state in answer.transaction_states)

        wait_until(is_at_rest)

    def wait_for_groups(self) -> None:
        """Until the coordinator of groups has looked at what it was sent before."""
        wait_for_group_coordinator(self._client, "any")

    def close(self) -> None:
        self._client.close()


class Table:
    """Where histories are played: both brokers, and topics for the next ones."""

    def __init__(self, brokers: Brokers, run: str = "diff") -> None:
        self._addresses = (brokers.kafka, brokers.ours)
        self._run = run
        self._count = 0
        self._stock: list[str] = []
        self._used: list[str] = []
        self._attendants = [Attendant(address, run) for address in self._addresses]
        self._topic_ids: list[dict[str, UUID]] = [{}, {}]
        self._complaints = Complaints()

    def __enter__(self) -> Self:
        self._complaints.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._complaints.__exit__(kind, error, traceback)
        for attendant in self._attendants:
            attendant.close()

    def play(self, history: History) -> Play:
        """Plays the history with new names."""
        prefix = self._take_prefix()
        sides = []
        for address, ids in zip(self._addresses, self._topic_ids, strict=True):
            own = {name: topic_id for name, topic_id in ids.items() if name.startswith(f"{prefix}-")}
            sides.append(Side(address, prefix, own))
        try:
            return _Player(history, sides, self._attendants, self._complaints).play()
        finally:
            for side in sides:
                side.close()

    def _take_prefix(self) -> str:
        if not self._stock:
            self._restock()
        prefix = self._stock.pop(0)
        self._used.append(prefix)
        return prefix

    def _restock(self) -> None:
        names = [f"{prefix}-{name}" for prefix in self._used for name in (*TOPICS, "new", "newer")]
        self._used = []
        self._stock = [f"{self._run}-{self._count + number:06d}" for number in range(STOCK)]
        self._count += STOCK
        for index, attendant in enumerate(self._attendants):
            if names:
                attendant.drop(names)
            self._topic_ids[index] = attendant.make(self._stock)


def _answer_of(side: Side, connection: int, wait_s: float) -> Any:
    return side.receive(connection) if side.is_ready(connection, wait_s) else UNANSWERED


class _Player:
    """One history while it is played."""

    def __init__(
        self, history: History, sides: list[Side], attendants: list[Attendant], complaints: Complaints
    ) -> None:
        self._result = Play(history)
        self._kafka, self._ours = sides
        self._sides = sides
        self._attendants = attendants
        self._complaints = complaints
        self._parked: dict[int, tuple[Exchange, Any]] = {}

    def play(self) -> Play:
        for number, step in self._result.history.steps:
            if step.connection in self._parked:
                continue  # its connection waits for an earlier answer
            if not self._ask(number, step) or not self._receive_parked(0.0):
                return self._result
            self._settle(step)
        self._receive_parked(PARK_S)
        return self._result

    def _ask(self, number: int, step: Step) -> bool:
        """Whether the history goes on."""
        exchange = Exchange(number, step)
        self._result.exchanges.append(exchange)
        request, _ = [side.send(step) for side in self._sides]
        may_park = step.api_key in PARKING_APIS or not step.is_sound
        if may_park and not self._is_answered(step.connection):
            self._parked[step.connection] = exchange, request
            return True
        return self._receive(exchange, request)

    def _is_answered(self, connection: int) -> bool:
        """Whether one of the sides answers, or the request is parked; then what comes next must find it parked."""
        if self._any_ready(connection, PARK_S):
            return True
        for attendant in self._attendants:
            attendant.wait_for_groups()
        return self._any_ready(connection, PARK_S)

    def _receive_parked(self, wait_s: float) -> bool:
        for connection, (exchange, request) in list(self._parked.items()):
            if self._any_ready(connection, wait_s):
                del self._parked[connection]
                if not self._receive(exchange, request):
                    return False
        return True

    def _any_ready(self, connection: int, wait_s: float) -> bool:
        sockets = [side.clients[connection].socket for side in self._sides]
        return any_readable(sockets, wait_s)

    def _receive(self, exchange: Exchange, request: Any) -> bool:
        connection = exchange.step.connection
        exchange.kafka, exchange.ours = (_answer_of(side, connection, ANSWER_S) for side in self._sides)
        goes_on = self._compare(exchange, request)
        if exchange.differences and UNANSWERED in (exchange.kafka, exchange.ours):
            if exchange.kafka == UNANSWERED:
                exchange.kafka = _answer_of(self._kafka, connection, SLOW_ANSWER_S)
            if exchange.ours == UNANSWERED:
                exchange.ours = _answer_of(self._ours, connection, SLOW_ANSWER_S)
            goes_on = self._compare(exchange, request)
        exchange.complaint = self._complaints.take()
        if exchange.differences or exchange.complaint:
            self._result.bad = exchange
            return False
        return goes_on and exchange.kafka != UNANSWERED

    def _compare(self, exchange: Exchange, request: Any) -> bool:
        """Notes the differences, and which of them are allowed; whether the two are still alike afterwards."""
        exchange.differences, exchange.permissions = [], []
        goes_on = True
        for difference in differences(exchange.kafka, exchange.ours):
            allowed = permission(Case(exchange.step, request, exchange.kafka, difference))
            if allowed is None:
                exchange.differences.append(difference)
            else:
                exchange.permissions.append(allowed)
                goes_on = goes_on and not allowed.ends
        return goes_on

    def _settle(self, step: Step) -> None:
        if step.api_key in METADATA_APIS:
            for attendant in self._attendants:
                attendant.settle()
        if step.api_key in TRANSACTION_APIS:
            ids = [self._kafka.known.name(short) for short in TRANSACTIONAL_IDS]
            for attendant in self._attendants:
                attendant.rest(ids)
