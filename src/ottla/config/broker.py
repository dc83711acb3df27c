"""The configuration of one broker, typed and checked: what `server.properties` and the command line say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ottla.config.broker_settings import (
    SECURITY_PROTOCOLS,
    CleanerSettings,
    GroupCoordinatorSettings,
    IdentitySettings,
    LogSettings,
    NetworkSettings,
    ReplicationSettings,
    TopicCreationSettings,
    TransactionBrokerSettings,
)
from ottla.config.listener_security import (
    ListenerSecurity,
    listener_security,
    listener_setting,
    own_limit,
    split_listener_setting,
)
from ottla.config.listeners import (
    UNROUTABLE,
    Endpoint,
    check_ports_differ,
    listener_name,
    parse_endpoints,
    parse_protocol_map,
)
from ottla.config.properties import Properties
from ottla.config.quota_settings import QuotaSettings
from ottla.config.security_settings import (
    AuthorizationSettings,
    DelegationTokenSettings,
    OAuthSettings,
    PasswordEncoderSettings,
    SaslSettings,
    TlsSettings,
)
from ottla.config.setting import Setting, Value, attribute_of, settings_of, unknown_setting
from ottla.config.settings_without_effect import SettingsWithoutEffect
from ottla.config.topic import TOPIC_SETTINGS, LogConfig
from ottla.config.unsupported import is_known_unsupported
from ottla.config.zookeeper_settings import ZooKeeperSettings
from ottla.errors import ConfigError

DEDUPE_BUFFER_BYTES_MIN = 1 << 20  # for each compaction that runs


# Without slots, unlike other values here: slots forbid several bases, and there is one of these in a process.
@dataclass(frozen=True, repr=False)
class BrokerConfig(
    IdentitySettings,
    NetworkSettings,
    QuotaSettings,
    TopicCreationSettings,
    LogSettings,
    CleanerSettings,
    ReplicationSettings,
    GroupCoordinatorSettings,
    TransactionBrokerSettings,
    TlsSettings,
    SaslSettings,
    OAuthSettings,
    DelegationTokenSettings,
    PasswordEncoderSettings,
    AuthorizationSettings,
    ZooKeeperSettings,
    SettingsWithoutEffect,
):
    """The settings of a broker. The field names are the setting names with `_` for `.`."""

    # Settings for one listener, `listener.name.<name>.…`, as texts that were checked.
    listener_overrides: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """The configuration that the properties describe, and warnings about what has no effect.

        ConfigError says in one line which setting is unknown, of the wrong type, out of range or at odds with another.
        """
        values: dict[str, Any] = {}
        overrides: dict[str, str] = {}
        ignored = []
        for name, text in properties.items():
            if name in BROKER_SETTINGS:
                values[attribute_of(name)] = _parsed(name, text, properties)
                if BROKER_SETTINGS[name].no_effect:
                    ignored.append(name)
            elif (of_listener := listener_setting(name)) is not None:
                _parsed(name, text, properties, of_listener)
                overrides[name] = text
            elif is_known_unsupported(name):
                ignored.append(name)
            else:
                raise ConfigError(_origin(name, properties) + unknown_setting(name, BROKER_SETTINGS))
        if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= properties.keys():
            raise ConfigError(
                "inter.broker.listener.name and security.inter.broker.protocol exclude each other: set one"
            )
        config = cls(**_with_one_id(values), listener_overrides=overrides)
        config.check()
        listeners = {endpoint.name for endpoint in config.endpoints}
        for name in overrides:
            split = split_listener_setting(name)
            if split is not None and split[0].upper() not in listeners:
                ignored.append(name)
        warnings = list(properties.notes) if isinstance(properties, Properties) else []
        if ignored:
            warnings.append(f"settings of Kafka without effect here: {', '.join(sorted(ignored))}")
        return config, warnings

    def __repr__(self) -> str:
        """What differs from the defaults; never a password."""
        changed = (
            f"{setting.attribute}={'[hidden]' if setting.is_sensitive else repr(value)}"
            for setting in BROKER_SETTINGS.values()
            if (value := getattr(self, setting.attribute)) != setting.default
        )
        return f"BrokerConfig({', '.join(changed)})"

    @property
    def log_directories(self) -> tuple[str, ...]:
        return self.log_dirs or self.log_dir

    @cached_property
    def topic_defaults(self) -> LogConfig:
        """The configuration of a topic that sets nothing itself."""
        inherited: dict[str, Any] = {
            setting.attribute: inherited_value(setting, self) for setting in TOPIC_SETTINGS.values()
        }
        return LogConfig.combined(inherited)

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where the broker listens."""
        return self._endpoints_in("listeners", self.listeners)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses that clients get. Where the host is empty or the port 0, the broker fills in what it bound."""
        if self.advertised_listeners is None:
            return self.endpoints
        return self._endpoints_in("advertised.listeners", self.advertised_listeners)

    @cached_property
    def security_of_listeners(self) -> dict[str, ListenerSecurity]:
        """What holds on each listener, by its name; ConfigError where one cannot be served so."""
        return {
            endpoint.name: listener_security(endpoint, self, self.listener_overrides) for endpoint in self.endpoints
        }

    def limits_of_listeners(self, setting: str) -> dict[str, int]:
        """A limit on connections by the name of the listener, where one has its own."""
        limits = {
            endpoint.name: own_limit(endpoint.name, setting, self.listener_overrides) for endpoint in self.endpoints
        }
        return {name: limit for name, limit in limits.items() if limit is not None}

    @cached_property
    def inter_broker_listener(self) -> str:
        """The name of the listener by which other brokers reach this one."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        wanted = self.security_inter_broker_protocol
        for endpoint in self.advertised_endpoints:
            if endpoint.security_protocol == wanted:
                return endpoint.name
        raise ConfigError(
            f"no listener speaks {wanted}, which brokers use among themselves: add one, or set "
            "inter.broker.listener.name"
        )

    @cached_property
    def connections_per_ip_overrides(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address."""
        limits = {}
        for item in filter(None, self.max_connections_per_ip_overrides.split(",")):
            address, _, count = item.rpartition(":")
            limits[address.strip()] = int(count)
        return limits

    def check(self) -> None:
        """ConfigError if settings contradict each other."""
        self._check_listeners()
        self._check_logs()
        self._check_replication()
        self._check_groups()
        self.topic_defaults.check()

    def _endpoints_in(self, setting: str, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
        protocols = parse_protocol_map(
            "listener.security.protocol.map", self.listener_security_protocol_map, SECURITY_PROTOCOLS
        )
        controllers = {name.upper() for name in self.controller_listener_names}
        own = [text for text in texts if listener_name(text) not in controllers]
        return parse_endpoints(setting, own, protocols)

    def _check_listeners(self) -> None:
        if not self.endpoints:
            raise ConfigError("listeners: the broker needs one that is not in controller.listener.names")
        check_ports_differ("listeners", self.endpoints)
        names = {endpoint.name for endpoint in self.endpoints}
        assert self.security_of_listeners is not None, "looking at them has checked them"
        for endpoint in self.advertised_endpoints:
            _require(
                endpoint.name in names,
                f"advertised.listeners={endpoint}: there is no listener {endpoint.name}; listeners has "
                f"{', '.join(sorted(names))}",
            )
            _require(
                endpoint.host not in UNROUTABLE,
                f"{endpoint}: clients cannot connect to {endpoint.host}; set advertised.listeners to an address that "
                "they can reach",
            )
        _require(
            self.inter_broker_listener in {endpoint.name for endpoint in self.advertised_endpoints},
            f"inter.broker.listener.name={self.inter_broker_listener}: is not among the advertised listeners",
        )
        _require(
            self.max_connections_per_ip > 0 or bool(self.connections_per_ip_overrides),
            "max.connections.per.ip=0: nobody can connect without max.connections.per.ip.overrides",
        )
        _require(
            self.queued_max_request_bytes <= 0 or self.queued_max_request_bytes >= self.socket_request_max_bytes,
            f"queued.max.request.bytes={self.queued_max_request_bytes}: must be at least socket.request.max.bytes "
            f"({self.socket_request_max_bytes}), or -1",
        )

    def _check_logs(self) -> None:
        _require(bool(self.log_directories), "log.dirs: the broker needs a data directory")
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            _require(getattr(self, attribute_of(name)) != 0, f"{name}=0: must be at least 1, or -1 for no limit")
        _require(
            self.log_cleaner_dedupe_buffer_size >= DEDUPE_BUFFER_BYTES_MIN * self.log_cleaner_threads,
            f"log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: must be at least "
            f"{DEDUPE_BUFFER_BYTES_MIN} for each of log.cleaner.threads ({self.log_cleaner_threads})",
        )

    def _check_replication(self) -> None:
        self._require_order("replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
        self._require_order("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
        self._require_order("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms")

    def _check_groups(self) -> None:
        self._require_order("group.min.session.timeout.ms", "group.max.session.timeout.ms")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            self._require_order(f"group.consumer.min.{what}", f"group.consumer.{what}")
            self._require_order(f"group.consumer.{what}", f"group.consumer.max.{what}")
        self._require_order("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms")

    def _require_order(self, lower: str, upper: str) -> None:
        low, high = getattr(self, attribute_of(lower)), getattr(self, attribute_of(upper))
        _require(low <= high, f"{lower}={low}: must not be larger than {upper} ({high})")


BROKER_SETTINGS: dict[str, Setting] = settings_of(BrokerConfig)


def inherited_value(setting: Setting, config: BrokerConfig) -> Value | None:
    """What a topic or group has if it sets nothing itself: the broker's value, by the strongest name that is set."""
    for name in setting.broker_names:
        value: Value | None = getattr(config, attribute_of(name))
        if value is not None:
            unit = BROKER_SETTINGS[name].unit
            # -1 hours are no limit, and so are -1 ms.
            return value * unit if isinstance(value, int) and unit != 1 and value > 0 else value
    return setting.default


def _parsed(name: str, text: str, properties: Mapping[str, str], setting: Setting | None = None) -> Value:
    try:
        return (setting or BROKER_SETTINGS[name]).parse_set(text)
    except ConfigError as error:
        raise ConfigError(f"{_origin(name, properties)}{error}") from None


def _origin(name: str, properties: Mapping[str, str]) -> str:
    return f"{properties.origin(name)}: " if isinstance(properties, Properties) else ""


def _with_one_id(values: dict[str, Any]) -> dict[str, Any]:
    """`broker.id` and `node.id` are one thing: either gives both."""
    ids = {values[attribute] for attribute in ("broker_id", "node_id") if values.get(attribute, -1) != -1}
    if len(ids) > 1:
        raise ConfigError(f"broker.id={values['broker_id']} and node.id={values['node_id']} differ: set one of them")
    return {**values, **{attribute: number for number in ids for attribute in ("broker_id", "node_id")}}


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)
