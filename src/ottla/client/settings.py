"""The settings of the clients: typed values, under three spellings.

    ProducerSettings.read({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 20})       # Java's and librdkafka's
    ProducerSettings.read(bootstrap_servers="127.0.0.1:9092", linger_ms=20)                # kafka-python's
    ProducerSettings.read(bootstrap_servers="127.0.0.1:9092", linger_s=0.02)               # ours: times in seconds

Defaults are those of Java's client. A name that nobody knows is refused with the nearest one that there is, and so is a
setting that is given twice. Every setting is a field of a frozen dataclass; its Java name and its aliases stand beside
it and nowhere else.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

from ottla.client.errors import SettingsError
from ottla.errors import ConfigError

Value = TypeVar("Value")
Read = Callable[[Any], Any]

INT32_MAX: Final = 2**31 - 1
UNLIMITED: Final = math.inf
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5  # a broker knows this many batches of a producer again

SECRET: Final = re.compile(r"password|jaas|key.pem|keystore.key|token")  # settings whose values nothing shows

log = logging.getLogger("ottla.client")


@dataclass(frozen=True, slots=True)
class Definition:
    """How a setting is called elsewhere, and how its value is read. `is_time`: other spellings are in milliseconds."""

    java_name: str
    read: Read
    aliases: tuple[str, ...] = ()
    is_time: bool = False


# -- how values are read -----------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    return value


def _non_empty_text(value: Any) -> str:
    if not _text(value):
        raise ValueError("it must not be empty")
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("true or false is wanted")


def _whole_number(at_least: int, at_most: float = UNLIMITED) -> Read:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("a whole number is wanted")
        try:
            number = int(value)
        except ValueError:
            raise ValueError("a whole number is wanted") from None
        _check_within(number, at_least, at_most)
        return number

    return read


def _number(at_least: float, at_most: float = UNLIMITED) -> Read:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError("a number is wanted")
        try:
            number = float(value)
        except ValueError:
            raise ValueError("a number is wanted") from None
        if math.isnan(number):
            raise ValueError("a number is wanted")
        _check_within(number, at_least, at_most)
        return number

    return read


def _check_within(number: float, at_least: float, at_most: float) -> None:
    if not at_least <= number <= at_most:
        limit = f"at least {_plain(at_least)}" if at_most == UNLIMITED else f"{_plain(at_least)} to {_plain(at_most)}"
        raise ValueError(f"it must be {limit}")


def _plain(limit: float) -> str:
    """Whole numbers with all of their digits: somebody may want to set the limit itself."""
    return f"{limit:.0f}" if float(limit).is_integer() else f"{limit:g}"


def _choice(*choices: str, upper: bool = False) -> Read:
    def read(value: Any) -> str:
        text = str(value).strip()
        found = text.upper() if upper else text.lower()
        if found not in choices:
            raise ValueError(f"one of {', '.join(choices)} is wanted")
        return found

    return read


def _names(value: Any) -> tuple[str, ...]:
    """A list, or text with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise ValueError("a list of names is wanted, or text with commas between them")
    found = tuple(item.strip() for item in items if item.strip())
    if len(set(found)) != len(found):
        raise ValueError("a name stands there twice")
    return found


def _objects(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError("a list of objects is wanted")
    return tuple(value)


def _names_or_objects(value: Any) -> tuple[Any, ...]:
    return _names(value) if isinstance(value, str) else _objects(value)


def _any(value: Any) -> Any:
    return value


def _optional(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _acks(value: Any) -> int:
    found = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(value).strip().lower())
    if found is None or isinstance(value, bool):
        raise ValueError("one of all, -1, 0, 1 is wanted")
    return found


def _bad_record_policy(value: Any) -> Any:
    if value not in ("raise", "skip") and not callable(value):
        raise ValueError("raise, skip or a callable is wanted")
    return value


def _check_hostname(value: Any) -> bool:
    """Java and librdkafka name an algorithm here, and none with an empty name."""
    if isinstance(value, str) and value.lower() in ("https", "none", ""):
        return value.lower() == "https"
    return _boolean(value)


# -- how settings are declared -----------------------------------------------------------------------------------------


def _setting(java_name: str, default: Value, read: Read, *aliases: str) -> Value:
    definition = Definition(java_name, read, aliases)
    return dataclasses.field(default=default, metadata={"setting": definition}, repr=SECRET.search(java_name) is None)


def _time(java_name: str, default_s: float, *aliases: str, at_least_ms: float = 0) -> float:
    """A time. Python's name ends in `_s` and counts seconds, every other in `ms` and counts milliseconds."""
    definition = Definition(java_name, _number(at_least_ms), aliases, is_time=True)
    return dataclasses.field(default=default_s, metadata={"setting": definition})


def _required(java_name: str, read: Read, *aliases: str) -> Any:
    return dataclasses.field(metadata={"setting": Definition(java_name, read, aliases)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What all clients have. Made by `read`; what was given and what is a default is known (`is_given`)."""

    client_kind: ClassVar[str] = "client"

    bootstrap_servers: tuple[str, ...] = _required("bootstrap.servers", _names, "metadata.broker.list")
    client_id: str = _setting("client.id", "", _text)
    client_rack: str = _setting("client.rack", "", _text)
    connections_max_idle_s: float = _time("connections.max.idle.ms", 540.0)
    default_api_timeout_s: float = _time("default.api.timeout.ms", 60.0)
    metadata_max_age_s: float = _time(
        "metadata.max.age.ms", 300.0, "topic.metadata.refresh.interval.ms", "metadata_max_age"
    )
    metadata_recovery_strategy: str = _setting(
        "metadata.recovery.strategy", "rebootstrap", _choice("rebootstrap", "none")
    )
    metadata_recovery_rebootstrap_trigger_s: float = _time("metadata.recovery.rebootstrap.trigger.ms", 300.0)
    metric_reporters: tuple[Any, ...] = _setting("metric.reporters", (), _objects)
    metrics_num_samples: int = _setting("metrics.num.samples", 2, _whole_number(1))
    metrics_sample_window_s: float = _time("metrics.sample.window.ms", 30.0)
    receive_message_max_bytes: int = _setting(
        "receive.message.max.bytes", 100 * 1024 * 1024, _whole_number(1000, INT32_MAX)
    )
    reconnect_backoff_s: float = _time("reconnect.backoff.ms", 0.05)
    reconnect_backoff_max_s: float = _time("reconnect.backoff.max.ms", 1.0)
    request_timeout_s: float = _time("request.timeout.ms", 30.0, "socket.timeout.ms")
    retry_backoff_s: float = _time("retry.backoff.ms", 0.1)
    retry_backoff_max_s: float = _time("retry.backoff.max.ms", 1.0)
    socket_connection_setup_timeout_s: float = _time("socket.connection.setup.timeout.ms", 10.0)
    socket_connection_setup_timeout_max_s: float = _time("socket.connection.setup.timeout.max.ms", 30.0)

    security_protocol: str = _setting(
        "security.protocol", "PLAINTEXT", _choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", upper=True)
    )
    ssl_context: Any = _setting("ssl.context", None, _any)
    ssl_cafile: str | None = _setting("ssl.ca.location", None, _optional(_text), "ssl.truststore.location")
    ssl_ca_pem: str | None = _setting("ssl.ca.pem", None, _optional(_text), "ssl.truststore.certificates")
    ssl_certfile: str | None = _setting("ssl.certificate.location", None, _optional(_text), "ssl.keystore.location")
    ssl_keyfile: str | None = _setting("ssl.key.location", None, _optional(_text))
    ssl_password: str | None = _setting("ssl.key.password", None, _optional(_text))
    ssl_certificate_pem: str | None = _setting(
        "ssl.certificate.pem", None, _optional(_text), "ssl.keystore.certificate.chain"
    )
    ssl_key_pem: str | None = _setting("ssl.key.pem", None, _optional(_text), "ssl.keystore.key")
    ssl_keystore_type: str = _setting("ssl.keystore.type", "PEM", _choice("PEM", "PKCS12", upper=True))
    ssl_keystore_password: str | None = _setting("ssl.keystore.password", None, _optional(_text))
    ssl_truststore_type: str = _setting("ssl.truststore.type", "PEM", _choice("PEM", "PKCS12", upper=True))
    ssl_truststore_password: str | None = _setting("ssl.truststore.password", None, _optional(_text))
    ssl_enabled_protocols: tuple[str, ...] = _setting("ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), _names)
    ssl_ciphers: str | None = _setting("ssl.cipher.suites", None, _optional(_text))
    ssl_check_hostname: bool = _setting("ssl.endpoint.identification.algorithm", True, _check_hostname)
    sasl_mechanism: str = _setting(
        "sasl.mechanism", "PLAIN", _choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", upper=True),
        "sasl.mechanisms",
    )  # fmt: skip
    sasl_username: str | None = _setting("sasl.username", None, _optional(_text), "sasl_plain_username")
    sasl_password: str | None = _setting("sasl.password", None, _optional(_text), "sasl_plain_password")
    sasl_jaas_config: str | None = _setting("sasl.jaas.config", None, _optional(_text))
    sasl_token_provider: Any = _setting(
        "sasl.oauth.token.provider", None, _any, "sasl_oauth_token_provider", "oauth_cb"
    )

    given: frozenset[str] = frozenset()  # the fields that were set by hand

    @classmethod
    def read(cls, settings: Mapping[str, Any] | None = None, /, **keywords: Any) -> Self:
        """Settings from a mapping, keywords or both, under any of their names; SettingsError says what is wrong."""
        if settings is not None and not isinstance(settings, Mapping):
            raise SettingsError(
                "settings",
                f"settings are a mapping or keywords, such as bootstrap_servers={settings!r}; not {settings!r} alone",
            )
        values: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name, value in [*(settings or {}).items(), *keywords.items()]:
            field_name, definition, is_ours = cls._find(name)
            if field_name in values:
                raise SettingsError(name, f"{name} and {spelled[field_name]} are the same setting: give one of them")
            spelled[field_name] = name
            values[field_name] = _read_value(name, value, definition, is_ours)
        if not values.get("bootstrap_servers"):
            raise SettingsError("bootstrap_servers", "bootstrap_servers is missing: name a broker, such as host:9092")
        try:
            return cls(**values, given=frozenset(values))
        except ConfigError:
            raise
        except ValueError as error:
            raise SettingsError("", str(error)) from error

    @classmethod
    def _find(cls, name: str) -> tuple[str, Definition, bool]:
        names = _names_of(cls)
        if name in names:
            return names[name]
        hint = ""
        if name in NOT_HERE:
            hint = f": {NOT_HERE[name]}"
        elif near := difflib.get_close_matches(name, names, n=1, cutoff=0.6):
            hint = f"; did you mean {near[0]}?"
        raise SettingsError(name, f"a {cls.client_kind} has no setting {name}{hint}")

    @classmethod
    def has_setting(cls, name: str) -> bool:
        return name in _names_of(cls)

    def is_given(self, field_name: str) -> bool:
        return field_name in self.given

    def __post_init__(self) -> None:
        if not self.is_given("reconnect_backoff_max_s") and self.is_given("reconnect_backoff_s"):
            self._set(reconnect_backoff_max_s=self.reconnect_backoff_s)
        if self.retry_backoff_s > self.retry_backoff_max_s:
            log.warning("retry_backoff_s is above retry_backoff_max_s: %g s is used", self.retry_backoff_max_s)
            self._set(retry_backoff_s=self.retry_backoff_max_s)

    def _set(self, **values: Any) -> None:
        """While it is made, what follows from the rest is filled in."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _read_value(name: str, value: Any, definition: Definition, is_ours: bool) -> Any:
    try:
        if definition.is_time and is_ours:
            return definition.read(float(value) * 1000) / 1000
        found = definition.read(value)
    except (ValueError, TypeError) as error:
        shown = "[hidden]" if SECRET.search(name) else repr(value)
        raise SettingsError(name, f"{name} cannot be {shown}: {error}") from None
    return found / 1000 if definition.is_time else found


_known_names: dict[type, dict[str, tuple[str, Definition, bool]]] = {}


def _names_of(kind: type[ClientSettings]) -> dict[str, tuple[str, Definition, bool]]:
    """Every name that a setting may be called by; whether it is ours, with seconds in it."""
    if kind in _known_names:
        return _known_names[kind]
    names = _known_names[kind] = {}
    for field in dataclasses.fields(kind):
        if "setting" not in field.metadata:
            continue
        definition: Definition = field.metadata["setting"]
        for other in (definition.java_name, *definition.aliases):
            names[other] = names[other.replace(".", "_")] = (field.name, definition, False)
        names[field.name] = (field.name, definition, True)
    return names


# -- the clients -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    client_kind: ClassVar[str] = "producer"

    acks: int = _setting("acks", -1, _acks, "request.required.acks")
    batch_size: int = _setting("batch.size", 16384, _whole_number(0, INT32_MAX), "max_batch_size")
    buffer_memory: int = _setting("buffer.memory", 32 * 1024 * 1024, _whole_number(0))
    compression_type: str = _setting(
        "compression.type", "none", _choice("none", "gzip", "snappy", "lz4", "zstd"), "compression.codec"
    )
    compression_level: int | None = _setting("compression.level", None, _optional(_whole_number(-131072, 22)))
    compression_gzip_level: int = _setting("compression.gzip.level", -1, _whole_number(-1, 9))
    compression_lz4_level: int = _setting("compression.lz4.level", 9, _whole_number(1, 17))
    compression_zstd_level: int = _setting("compression.zstd.level", 3, _whole_number(-131072, 22))
    delivery_timeout_s: float = _time("delivery.timeout.ms", 120.0, "message.timeout.ms")
    enable_idempotence: bool = _setting("enable.idempotence", True, _boolean)
    interceptors: tuple[Any, ...] = _setting("interceptor.classes", (), _objects)
    key_serializer: Any = _setting("key.serializer", None, _any)
    value_serializer: Any = _setting("value.serializer", None, _any)
    linger_s: float = _time("linger.ms", 0.005, "queue.buffering.max.ms")
    max_block_s: float = _time("max.block.ms", 60.0)
    max_in_flight_requests_per_connection: int = _setting(
        "max.in.flight.requests.per.connection", 5, _whole_number(1), "max.in.flight"
    )
    max_request_size: int = _setting("max.request.size", 1048576, _whole_number(0, INT32_MAX), "message.max.bytes")
    metadata_max_idle_s: float = _time("metadata.max.idle.ms", 300.0, at_least_ms=5000)
    partitioner: Any = _setting("partitioner.class", None, _any, "partitioner")
    partitioner_adaptive_partitioning_enable: bool = _setting(
        "partitioner.adaptive.partitioning.enable", True, _boolean
    )
    partitioner_availability_timeout_s: float = _time("partitioner.availability.timeout.ms", 0.0)
    partitioner_ignore_keys: bool = _setting("partitioner.ignore.keys", False, _boolean)
    retries: int = _setting("retries", INT32_MAX, _whole_number(0, INT32_MAX), "message.send.max.retries")
    transaction_timeout_s: float = _time("transaction.timeout.ms", 60.0)
    transactional_id: str | None = _setting("transactional.id", None, _optional(_non_empty_text))

    def __post_init__(self) -> None:
        # By name: a dataclass with slots is another class than the one whose body `super()` would look at.
        ClientSettings.__post_init__(self)
        self._settle_idempotence()
        self._settle_delivery_timeout()

    def _settle_idempotence(self) -> None:
        in_the_way = [
            reason
            for reason, stands in (
                (f"acks={self.acks}", self.acks != -1),
                ("retries=0", self.retries == 0),
            )
            if stands
        ]
        if self.enable_idempotence and in_the_way:
            if self.is_given("enable_idempotence") or self.transactional_id is not None:
                raise SettingsError(
                    "enable_idempotence", f"idempotence is not possible with {' and '.join(in_the_way)}"
                )
            log.info("idempotence is off because of %s", " and ".join(in_the_way))
            self._set(enable_idempotence=False)
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > IDEMPOTENT_IN_FLIGHT_MAX:
            raise SettingsError(
                "max_in_flight_requests_per_connection",
                f"idempotence allows at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight, "
                f"not {self.max_in_flight_requests_per_connection}",
            )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise SettingsError("transactional_id", "transactions need idempotence: enable_idempotence=True")

    def _settle_delivery_timeout(self) -> None:
        least_s = self.linger_s + self.request_timeout_s
        if self.delivery_timeout_s >= least_s:
            return
        if self.is_given("delivery_timeout_s"):
            raise SettingsError(
                "delivery_timeout_s",
                f"delivery_timeout_s ({self.delivery_timeout_s:g}) must be at least "
                f"linger_s + request_timeout_s ({least_s:g})",
            )
        log.warning("delivery_timeout_s is raised to linger_s + request_timeout_s: %g", least_s)
        self._set(delivery_timeout_s=least_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    client_kind: ClassVar[str] = "consumer"

    allow_auto_create_topics: bool = _setting("allow.auto.create.topics", True, _boolean)
    auto_commit_interval_s: float = _time("auto.commit.interval.ms", 5.0)
    auto_offset_reset: str = _setting("auto.offset.reset", "latest", _text)
    check_crcs: bool = _setting("check.crcs", True, _boolean)
    enable_auto_commit: bool = _setting("enable.auto.commit", True, _boolean)
    exclude_internal_topics: bool = _setting("exclude.internal.topics", True, _boolean)
    fetch_max_bytes: int = _setting("fetch.max.bytes", 50 * 1024 * 1024, _whole_number(0, INT32_MAX))
    fetch_max_wait_s: float = _time("fetch.max.wait.ms", 0.5, "fetch.wait.max.ms")
    fetch_min_bytes: int = _setting("fetch.min.bytes", 1, _whole_number(0, INT32_MAX))
    group_id: str | None = _setting("group.id", None, _optional(_text))
    group_instance_id: str | None = _setting("group.instance.id", None, _optional(_non_empty_text))
    group_protocol: str = _setting("group.protocol", "classic", _choice("classic", "consumer"))
    group_remote_assignor: str | None = _setting("group.remote.assignor", None, _optional(_text))
    heartbeat_interval_s: float = _time("heartbeat.interval.ms", 3.0)
    interceptors: tuple[Any, ...] = _setting("interceptor.classes", (), _objects)
    isolation_level: str = _setting(
        "isolation.level", "read_uncommitted", _choice("read_committed", "read_uncommitted")
    )
    key_deserializer: Any = _setting("key.deserializer", None, _any)
    value_deserializer: Any = _setting("value.deserializer", None, _any)
    max_partition_fetch_bytes: int = _setting(
        "max.partition.fetch.bytes", 1048576, _whole_number(0, INT32_MAX), "fetch.message.max.bytes"
    )
    max_poll_interval_s: float = _time("max.poll.interval.ms", 300.0, at_least_ms=1)
    max_poll_records: int = _setting("max.poll.records", 500, _whole_number(1, INT32_MAX))
    on_bad_record: Any = _setting("on.bad.record", "raise", _bad_record_policy)
    partition_assignment_strategy: tuple[Any, ...] = _setting(
        "partition.assignment.strategy", ("range", "cooperative-sticky"), _names_or_objects
    )
    session_timeout_s: float = _time("session.timeout.ms", 45.0)

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if self.group_id is None and self.enable_auto_commit:
            if self.is_given("enable_auto_commit"):
                raise SettingsError("enable_auto_commit", "enable_auto_commit needs a group_id")
            self._set(enable_auto_commit=False)
        self._check_group_protocol()

    def _check_group_protocol(self) -> None:
        forbidden = {
            "classic": ("group_remote_assignor",),
            "consumer": ("partition_assignment_strategy", "heartbeat_interval_s", "session_timeout_s"),
        }[self.group_protocol]
        for name in forbidden:
            if self.is_given(name):
                raise SettingsError(name, f"{name} does not go with group_protocol={self.group_protocol}")
        if self.group_protocol == "classic" and self.heartbeat_interval_s >= self.session_timeout_s:
            raise SettingsError("heartbeat_interval_s", "heartbeat_interval_s must be below session_timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    client_kind: ClassVar[str] = "admin"

    retries: int = _setting("retries", INT32_MAX, _whole_number(0, INT32_MAX))

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if self.default_api_timeout_s < self.request_timeout_s:
            if self.is_given("default_api_timeout_s"):
                raise SettingsError("default_api_timeout_s", "default_api_timeout_s must be at least request_timeout_s")
            self._set(default_api_timeout_s=self.request_timeout_s)


# Settings of other clients that are refused with a reason, so that nobody believes they have an effect.
NOT_HERE: Final = {
    "api_version": "versions are agreed on with each broker and not set",
    "api.version.request": "versions are agreed on with each broker and not set",
    "enable.metrics.push": "telemetry is not pushed to brokers",
    "transaction.two.phase.commit.enable": "no broker has it yet",
    "queue.buffering.max.messages": "give buffer_memory, in bytes",
    "queue.buffering.max.kbytes": "give buffer_memory, in bytes",
    "batch.num.messages": "give batch_size, in bytes",
    "enable.auto.offset.store": "give enable_auto_commit=False and commit what is done",
    "error_cb": "errors are raised, and connections are logged by `logging`",
    "on_delivery": "give send() a callback",
    "stats_cb": "give metric_reporters, or read metrics()",
    "debug": "set the level of the logger `ottla`",
    "consumer_timeout_ms": "give poll() a timeout",
    "default.topic.config": "give these settings to the client itself",
}
