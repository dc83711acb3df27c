"""The matrix of clients and features: a broker, a driver for each client, and the table that a run can write.

`pytest tests/interop/clients --against kafka` holds the drivers themselves against Apache Kafka, and
`--write-client-table` writes docs/reference/clients.md from what was seen.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.client_table import ClientTable
from ottla.testing.clients import CLIENTS, FEATURES, SECURED_CLIENTS, SECURITY_FEATURES, Client, Driver
from ottla.testing.waiting import WAIT_S, wait_until

DRIVERS = Path(__file__).parent / "drivers"
# Unknown topics must stay unknown; the rest is Kafka's default.
SETTINGS = {"auto.create.topics.enable": "false"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--against", choices=("ottla", "kafka"), default="ottla", help="whose broker the clients judge")
    parser.addoption("--write-client-table", action="store_true", help="write docs/reference/clients.md from this run")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "feature(name): the row of the table of clients that the test is about")
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--write-client-table", default=False) and not is_worker:
        if config.getoption("--against") != "ottla":
            raise pytest.UsageError("the table of clients is about Ottla: leave --against out")
        config.pluginmanager.register(TableWriter(config.rootpath / "docs" / "reference" / "clients.md"))


class TableWriter:
    """Notes what becomes of every test and writes the table when all are done."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._table = ClientTable()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if "client" in properties and not report.skipped and (report.when == "call" or report.failed):
            self._table.note(properties["client"], properties["feature"], passed=report.passed)

    def pytest_sessionfinish(self) -> None:
        self._page.write_text(self._table.render())


# --- the broker and the clients -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The broker that is judged, and a look at what it stored: the files are laid out as Kafka's are."""

    bootstrap: str
    log_dir: Path

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        """Made by a client that is not the one on trial, and there for every client that looks from now on."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})]).values()
        made.result(WAIT_S)
        self.wait_for_partitions(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (gone,) = admin.delete_topics([topic]).values()
        gone.result(WAIT_S)

    def config(self, topic: str, name: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        value: str = found.result(WAIT_S)[name].value
        return value

    def cluster_id(self) -> str:
        found: Any = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=WAIT_S).cluster_id
        return str(found)

    def wait_for_partitions(self, topic: str, partitions: int) -> None:
        """Until the metadata shows the topic with as many partitions, 0 for a topic that is gone."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def count() -> int:
            found = admin.list_topics(topic, timeout=WAIT_S).topics[topic]
            return sum(partition.leader >= 0 for partition in found.partitions.values())

        wait_until(lambda: count() == partitions)
        if partitions:
            self._wait_for_leaders(admin, topic, partitions)

    def _wait_for_leaders(self, admin: AdminClient, topic: str, partitions: int) -> None:
        """Kafka names a leader a moment before that one knows: until all of them answer."""
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}

        def is_led() -> bool:
            try:
                for answer in admin.list_offsets(asked, request_timeout=WAIT_S).values():
                    answer.result(WAIT_S)
            except KafkaException:
                return False
            return True

        wait_until(is_led)

    def wait_for_end(self, topic: str, end: int) -> None:
        """Until the partition holds so many records: acks=0 promises nothing about when."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        place = TopicPartition(topic, 0)

        def is_there() -> bool:
            try:
                return consumer.get_watermark_offsets(place, timeout=WAIT_S)[1] == end
            except KafkaException:
                return False

        wait_until(is_there)
        consumer.close()

    def batches(self, topic: str) -> list[BatchHeader]:
        """The headers of the batches in the first segment of partition 0."""
        data = (self.log_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
        headers, position = [], 0
        while position < len(data):
            header = batch.read_header(data, position)
            headers.append(header)
            position += header.size_bytes
        return headers


class Drivers:
    """The running drivers of this test process, started when they are first asked for and again if they broke."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._stack = stack
        self._running: dict[str, Driver] = {}

    def of(self, client: Client) -> Driver:
        running = self._running.get(client.slug)
        if running is None or not running.is_running:
            running = self._stack.enter_context(Driver(client.command(DRIVERS), self._bootstrap))
            self._running[client.slug] = running
        return running


@pytest.fixture(scope="session")
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    directory = tmp_path_factory.mktemp("judged")
    if request.config.getoption("--against", default="ottla") == "kafka":
        if missing := missing_programs():
            pytest.skip(f"Apache Kafka needs {' and '.join(missing)}, not installed here")
        with KafkaBroker(ApacheKafka.resolve(KAFKA_4), directory, SETTINGS) as kafka:
            yield Judged(kafka.bootstrap, kafka.log_dir)
    else:
        with Broker(SETTINGS, directory=directory, in_process=False) as ours:
            yield Judged(ours.bootstrap_servers, directory)


@pytest.fixture(scope="session")
def drivers(judged: Judged) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield Drivers(judged.bootstrap, stack)


@pytest.fixture(scope="session")
def make_drivers() -> Callable[[str, ExitStack], Drivers]:
    """For tests with a broker of their own."""
    return Drivers


@pytest.fixture(params=CLIENTS, ids=lambda client: client.slug)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, as far as it has the feature that the test is about."""
    return on_trial(request, FEATURES)


@pytest.fixture(params=SECURED_CLIENTS, ids=lambda client: client.slug)
def secured_client(request: pytest.FixtureRequest) -> Client:
    """The same of those that log in."""
    return on_trial(request, SECURITY_FEATURES)


def on_trial(request: pytest.FixtureRequest, features: Sequence[str]) -> Client:
    client: Client = request.param
    if (mark := request.node.get_closest_marker("feature")) is not None:
        feature = mark.args[0]
        assert feature in features, f"no row of the table is called {feature!r}"
        request.node.user_properties += [("client", str(client)), ("feature", feature)]
        if reason := client.lacks.get(feature):
            pytest.skip(f"{client}, {feature}: {reason}")
    skip_if_missing(client)
    return client


def skip_if_missing(client: Client) -> None:
    if missing := client.missing_programs:
        pytest.skip(f"{client} needs {' and '.join(missing)}, not installed here")


@pytest.fixture
def driver(client: Client, drivers: Drivers) -> Driver:
    return drivers.of(client)


_numbers = itertools.count()


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names of topics that no other test uses."""
    return lambda: f"topic-{next(_numbers)}"


@pytest.fixture
def make_topic(judged: Judged, new_name: Callable[[], str]) -> Callable[..., str]:
    """Makes a topic of its own for the test: `make_topic(partitions=1, configs={})` returns its name."""

    def make(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        topic = new_name()
        judged.create_topic(topic, partitions, configs)
        return topic

    return make


@pytest.fixture(scope="session")
def recently() -> int:
    """A moment in milliseconds to count record timestamps from: no retention reaches it, and it is not ahead."""
    return int(time.time() * 1000) - 3_600_000


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits until a condition holds: some answers of Kafka come true a moment later."""
    return wait_until
