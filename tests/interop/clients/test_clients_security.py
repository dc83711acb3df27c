"""Clients log in: by each mechanism with and without TLS, as somebody they are not, again and again, and no longer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla import Admin, Consumer
from ottla.client.admin.acls import Acl, AclFilter, AclOperation, AclResourceType
from ottla.ids import TopicPartition
from ottla.local_cluster.certificates import Authority
from ottla.testing.broker import Broker
from ottla.testing.clients import Client, Driver, Sent, StepError
from ottla.testing.secured_listeners import SecuredListeners
from ottla.testing.security import MECHANISMS, password
from ottla.testing.token_issuer import TokenIssuer, jwks
from ottla.testing.waiting import WAIT_S, wait_until

OPEN, TLS, LOGIN, BOTH = "OPEN", "TLS", "LOGIN", "BOTH"
EXPIRED, ELSEWHERE, SHORT, LONGER = "EXPIRED", "ELSEWHERE", "SHORT", "LONGER"
PROTOCOLS = {
    OPEN: "PLAINTEXT",
    TLS: "SSL",
    LOGIN: "SASL_PLAINTEXT",
    BOTH: "SASL_SSL",
    EXPIRED: "SASL_SSL",
    ELSEWHERE: "SASL_SSL",
    SHORT: "SASL_SSL",
    LONGER: "SASL_SSL",
}
OAUTHBEARER, SCRAM = "OAUTHBEARER", "SCRAM-SHA-512"
LIFETIME_MS = 2500
# KafkaJS logs in again with every request once less than ten seconds are left.
LONGER_LIFETIME_MS = 12_000
TOPIC_RIGHTS = (AclOperation.WRITE, AclOperation.READ)
TOPIC_FORBIDDEN = 29


class Logins(logging.Handler):
    """Counts who has logged in, as the broker says it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def count(self, user: str) -> int:
        return sum(f"User:{user} logged in by" in line for line in self.lines)


@dataclass(frozen=True, slots=True)
class Secured:
    """A broker with all these listeners, and what clients need to log in there."""

    broker: Broker
    listeners: SecuredListeners
    tokens: dict[str, Path]
    logins: Logins
    admin: Admin

    def security(self, listener: str, mechanism: str | None = None, **changes: str) -> dict[str, str]:
        found = {"protocol": PROTOCOLS[listener]}
        if found["protocol"].endswith("SSL"):
            found["ca"] = str(self.listeners.authority.truststore)
        if mechanism == OAUTHBEARER:
            found |= {"mechanism": mechanism, "token": str(self.tokens["good"])}
        elif mechanism is not None:
            found |= {"mechanism": mechanism, "username": "alice", "password": password("alice")}
        return {**found, **changes}

    def use(self, driver: Driver, listener: str, mechanism: str | None = None, **changes: str) -> None:
        security = self.security(listener, mechanism, **changes)
        driver.do("use", bootstrap=self.listeners.address(listener), security=security)

    def end_offset(self, topic: str) -> int:
        async def look() -> int:
            partition = self.broker.running.replicas.get(TopicPartition(topic, 0))
            assert partition is not None
            return partition.log.end_offset

        return self.broker.call(look())

    def allow(self, topic: str, user: str = "alice") -> None:
        for operation in TOPIC_RIGHTS:
            self.admin.create_acl(Acl(AclResourceType.TOPIC, topic, f"User:{user}", operation))

    def forbid(self, topic: str, operation: AclOperation) -> None:
        wanted = AclFilter(AclResourceType.TOPIC, topic, operation=operation)
        assert self.admin.delete_acls([wanted])

    def values(self, topic: str, count: int) -> list[bytes | None]:
        settings = {"bootstrap.servers": self.listeners.address(OPEN), "auto.offset.reset": "earliest"}
        found: list[bytes | None] = []
        with Consumer(settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            while len(found) < count:
                found += [record.value for records in consumer.poll(WAIT_S).values() for record in records]
        return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "certificates")
    listeners = SecuredListeners(PROTOCOLS, authority, mechanisms=(*MECHANISMS, OAUTHBEARER))
    issuer = TokenIssuer("RS256")
    (directory / "keys.json").write_bytes(jwks(issuer))
    settings = {
        **listeners.settings(),
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "auto.create.topics.enable": "false",
        "listener.name.expired.ssl.keystore.location": str(
            authority.create("expired", ("localhost", "127.0.0.1"), days=-1).keystore
        ),
        "listener.name.elsewhere.ssl.keystore.location": str(
            authority.create("elsewhere", ("elsewhere.example",)).keystore
        ),
        "listener.name.short.connections.max.reauth.ms": str(LIFETIME_MS),
        "listener.name.longer.connections.max.reauth.ms": str(LONGER_LIFETIME_MS),
    }
    logins = Logins()
    logger = logging.getLogger("ottla.broker.sasl_authenticator")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(logins)
    with (
        Broker(settings, directory=directory / "data") as broker,
        Admin({"bootstrap.servers": listeners.address(OPEN)}) as admin,
    ):
        # librdkafka looks for the coordinator of a consumer without a group, too.
        admin.create_acl(Acl(AclResourceType.GROUP, "*", "User:*", AclOperation.READ))
        yield Secured(broker, listeners, _tokens(directory, issuer), logins, admin)
    logger.removeHandler(logins)
    logger.setLevel(level)


def _tokens(directory: Path, issuer: TokenIssuer) -> dict[str, Path]:
    now_s = int(time.time())
    tokens = {}
    for name, ends_s in {"good": now_s + 3600, "expired": now_s - 3600}.items():
        claims = {"sub": "alice", "scope": "kafka", "aud": "kafka", "iat": now_s - 7200, "exp": ends_s}
        tokens[name] = directory / f"{name}.token"
        tokens[name].write_text(issuer.token(claims))
    return tokens


@pytest.fixture(scope="module")
def secured_drivers(secured: Secured, make_drivers: Callable[[str, ExitStack], object]) -> Iterator[object]:
    with ExitStack() as stack:
        yield make_drivers(secured.listeners.address(OPEN), stack)


@pytest.fixture
def driver(secured_client: Client, secured_drivers) -> Driver:
    found: Driver = secured_drivers.of(secured_client)
    return found


@pytest.fixture
def topic(secured: Secured, new_name: Callable[[], str]) -> str:
    name = f"secured-{new_name()}"
    secured.admin.create_topic(name, partitions=1)
    return name


def write_and_read(driver: Driver, topic: str) -> None:
    values = [b"one", b"two" * 50_000]
    driver.produce(topic, [Sent(value) for value in values])
    assert [record.value for record in driver.consume(topic, len(values))] == values


# -- the right way in --------------------------------------------------------------------------------------------------


@pytest.mark.feature("TLS")
def test_a_client_without_a_login_encrypts(secured: Secured, driver: Driver, topic: str) -> None:
    secured.use(driver, TLS)
    write_and_read(driver, topic)


def log_in(secured: Secured, driver: Driver, topic: str, listener: str, mechanism: str) -> None:
    secured.allow(topic)
    before = secured.logins.count("alice")
    secured.use(driver, listener, mechanism)
    write_and_read(driver, topic)
    assert secured.logins.count("alice") >= before + 2  # a producer and a consumer


@pytest.mark.feature("PLAIN")
@pytest.mark.parametrize("listener", [LOGIN, BOTH])
def test_a_client_logs_in_by_plain(secured: Secured, driver: Driver, topic: str, listener: str) -> None:
    log_in(secured, driver, topic, listener, "PLAIN")


@pytest.mark.feature("SCRAM-SHA-256")
@pytest.mark.parametrize("listener", [LOGIN, BOTH])
def test_a_client_logs_in_by_scram_256(secured: Secured, driver: Driver, topic: str, listener: str) -> None:
    log_in(secured, driver, topic, listener, "SCRAM-SHA-256")


@pytest.mark.feature("SCRAM-SHA-512")
@pytest.mark.parametrize("listener", [LOGIN, BOTH])
def test_a_client_logs_in_by_scram_512(secured: Secured, driver: Driver, topic: str, listener: str) -> None:
    log_in(secured, driver, topic, listener, SCRAM)


@pytest.mark.feature("OAUTHBEARER")
@pytest.mark.parametrize("listener", [LOGIN, BOTH])
def test_a_client_logs_in_by_a_token(secured: Secured, driver: Driver, topic: str, listener: str) -> None:
    log_in(secured, driver, topic, listener, OAUTHBEARER)


# -- no way in ---------------------------------------------------------------------------------------------------------


def refused(secured: Secured, driver: Driver, topic: str) -> StepError:
    """The client reports an error by itself, and nothing came of it."""
    secured.allow(topic)
    with pytest.raises(StepError) as error:
        driver.produce(topic, [Sent(b"x")])
    assert secured.end_offset(topic) == 0
    return error.value


@pytest.mark.feature("error: wrong password")
@pytest.mark.parametrize(("listener", "mechanism"), [(LOGIN, "PLAIN"), (BOTH, "SCRAM-SHA-256"), (BOTH, SCRAM)])
def test_a_wrong_password_is_an_error_of_the_client(
    secured: Secured, driver: Driver, topic: str, listener: str, mechanism: str
) -> None:
    before = secured.logins.count("alice")
    secured.use(driver, listener, mechanism, password="not-the-password")
    assert "not-the-password" not in str(refused(secured, driver, topic))
    assert secured.logins.count("alice") == before


@pytest.mark.feature("error: expired token")
def test_an_expired_token_is_an_error_of_the_client(secured: Secured, driver: Driver, topic: str) -> None:
    before = secured.logins.count("alice")
    secured.use(driver, BOTH, OAUTHBEARER, token=str(secured.tokens["expired"]))
    refused(secured, driver, topic)
    assert secured.logins.count("alice") == before


@pytest.mark.feature("error: expired certificate")
def test_a_client_gives_no_password_to_an_expired_certificate(secured: Secured, driver: Driver, topic: str) -> None:
    before = secured.logins.count("alice")
    secured.use(driver, EXPIRED, "PLAIN")
    refused(secured, driver, topic)
    assert secured.logins.count("alice") == before


@pytest.mark.feature("error: wrong host name")
def test_a_client_gives_no_password_to_another_host(secured: Secured, driver: Driver, topic: str) -> None:
    before = secured.logins.count("alice")
    secured.use(driver, ELSEWHERE, "PLAIN")
    refused(secured, driver, topic)
    assert secured.logins.count("alice") == before


# -- in the middle of a stream -----------------------------------------------------------------------------------------


@pytest.fixture
def in_background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.feature("stream beyond the lifetime of a login")
def test_a_stream_goes_on_beyond_the_lifetime_of_a_login(
    secured: Secured,
    secured_client: Client,
    driver: Driver,
    topic: str,
    in_background: ThreadPoolExecutor,
    tmp_path: Path,
) -> None:
    secured.allow(topic, "bob")
    listener = LONGER if secured_client.name == "KafkaJS" else SHORT
    mechanism = "PLAIN" if SCRAM in secured_client.lacks else SCRAM
    secured.use(driver, listener, mechanism, username="bob", password=password("bob"))
    before = secured.logins.count("bob")
    end = tmp_path / "end"
    streaming: Future[dict[str, int]] = in_background.submit(driver.do, "stream", topic=topic, until=str(end))
    try:
        wait_until(lambda: streaming.done() or secured.logins.count("bob") > before + 3)
    finally:
        end.touch()
    sent = streaming.result(WAIT_S)["sent"]
    values = secured.values(topic, sent)
    assert sent > 0
    assert {*values} >= {b"%d" % number for number in range(sent)}


@pytest.mark.feature("error: right revoked in a stream")
def test_a_writer_whose_right_is_revoked_gets_the_error(
    secured: Secured, driver: Driver, topic: str, in_background: ThreadPoolExecutor, tmp_path: Path
) -> None:
    secured.allow(topic)
    secured.use(driver, BOTH, "PLAIN")
    end = tmp_path / "end"
    streaming = in_background.submit(driver.do, "stream", topic=topic, until=str(end))
    try:
        wait_until(lambda: streaming.done() or secured.end_offset(topic) > 100)
        secured.forbid(topic, AclOperation.WRITE)
        written = secured.end_offset(topic)
        with pytest.raises(StepError) as error:
            streaming.result(WAIT_S)
    finally:
        end.touch()
    assert error.value.code == TOPIC_FORBIDDEN
    assert secured.end_offset(topic) == written  # none after the answer to whoever took the right away


@pytest.mark.feature("error: right revoked in a stream")
def test_a_reader_whose_right_is_revoked_gets_the_error(
    secured: Secured, driver: Driver, topic: str, in_background: ThreadPoolExecutor
) -> None:
    secured.allow(topic)
    secured.use(driver, BOTH, "PLAIN")
    driver.produce(topic, [Sent(b"x")] * 10)
    before = secured.logins.count("alice")
    reading = in_background.submit(driver.consume, topic, 1_000_000)
    wait_until(lambda: reading.done() or secured.logins.count("alice") > before)
    secured.forbid(topic, AclOperation.READ)
    with pytest.raises(StepError) as error:
        reading.result(WAIT_S)
    assert error.value.code == TOPIC_FORBIDDEN
