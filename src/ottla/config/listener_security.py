"""What holds on one listener: the broker's settings of security under those with the prefix of the listener.

`listener.name.<name>.ssl.keystore.location` counts on that listener in place of `ssl.keystore.location`, and
`listener.name.<name>.<mechanism>.sasl.jaas.config` for one mechanism there; listener and mechanism in lower case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.config.broker_settings import NetworkSettings
from ottla.config.jaas import MODULES, JaasEntry, parse_jaas
from ottla.config.listeners import Endpoint
from ottla.config.oauth import VERIFYING_HANDLERS, OAuthConfig, check_jwks_url
from ottla.config.security_settings import (
    OAUTHBEARER,
    PLAIN,
    SERVED_MECHANISMS,
    OAuthSettings,
    SaslSettings,
    TlsSettings,
)
from ottla.config.setting import Setting, attribute_of, settings_of
from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError

LISTENER_PREFIX = "listener.name."
JAAS_CONFIG = "sasl.jaas.config"
CONNECTION_LIMITS = ("max.connections", "max.connection.creation.rate")  # of a listener, beside those of the broker
LISTENER_SETTINGS: dict[str, Setting] = {
    **settings_of(TlsSettings),
    **settings_of(SaslSettings),
    **settings_of(OAuthSettings),
    **{name: one for name, one in settings_of(NetworkSettings).items() if name in CONNECTION_LIMITS},
}
MECHANISM_SETTINGS = (JAAS_CONFIG, "connections.max.reauth.ms", *settings_of(OAuthSettings))
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER_CLASS = "sasl.server.callback.handler.class"
KNOWN_MECHANISMS = {name.lower(): name for name in MODULES}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to log in on one listener."""

    name: str
    jaas: JaasEntry | None
    reauth_ms: int
    oauth: OAuthConfig | None = None


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How the peers of one listener are recognised."""

    name: str
    protocol: str
    mechanisms: Mapping[str, Mechanism]
    tls: TlsConfig | None
    principal_mapping_rules: str
    receive_bytes_max: int

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def split_listener_setting(name: str) -> tuple[str, str, str] | None:
    """The listener, the mechanism or "", and the setting that a name with the prefix stands for; None: not ours."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, base = rest.partition(".")
    if mechanism in KNOWN_MECHANISMS and base in MECHANISM_SETTINGS:
        return listener, mechanism, base
    return (listener, "", rest) if rest in LISTENER_SETTINGS else None


def listener_setting(name: str) -> Setting | None:
    """What the setting with the prefix of a listener is, under its whole name."""
    split = split_listener_setting(name)
    return None if split is None else dataclasses.replace(LISTENER_SETTINGS[split[2]], name=name)


class _Values:
    """The settings of one listener."""

    def __init__(self, listener: str, config: Any, overrides: Mapping[str, str]) -> None:
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        self._config = config
        self._overrides = overrides

    def name(self, setting: str, mechanism: str = "") -> str:
        return f"{self._prefix}{mechanism.lower()}.{setting}" if mechanism else f"{self._prefix}{setting}"

    def own(self, setting: str, mechanism: str = "") -> Any:
        """What is set for the listener itself; None where nothing is."""
        text = self._overrides.get(self.name(setting, mechanism))
        return None if text is None else LISTENER_SETTINGS[setting].parse(text)

    def get(self, setting: str, mechanism: str = "") -> Any:
        """The narrowest value that is set: for the mechanism on this listener, for the listener, for the broker."""
        own = self.own(setting, mechanism) if mechanism else None
        own = self.own(setting) if own is None else own
        return getattr(self._config, attribute_of(setting)) if own is None else own


def own_limit(listener: str, setting: str, overrides: Mapping[str, str]) -> int | None:
    """A limit on the connections of one listener; None where it has none of its own."""
    text = overrides.get(f"{LISTENER_PREFIX}{listener.lower()}.{setting}")
    return None if text is None else int(LISTENER_SETTINGS[setting].parse(text))  # type: ignore[arg-type]


def listener_security(endpoint: Endpoint, config: Any, overrides: Mapping[str, str]) -> ListenerSecurity:
    """What holds on a listener; ConfigError where it cannot be served so. `overrides`: all settings with a prefix."""
    values = _Values(endpoint.name, config, overrides)
    protocol = endpoint.security_protocol
    mechanisms = _mechanisms(values, endpoint) if protocol.startswith("SASL_") else {}
    tls = _tls(values, endpoint) if protocol in ("SSL", "SASL_SSL") else None
    return ListenerSecurity(
        endpoint.name,
        protocol,
        mechanisms,
        tls,
        values.get("ssl.principal.mapping.rules"),
        values.get("sasl.server.max.receive.size"),
    )


def _mechanisms(values: _Values, endpoint: Endpoint) -> dict[str, Mechanism]:
    setting = "sasl.enabled.mechanisms"
    names = values.get(setting)
    for name in names:
        if name == "GSSAPI":
            raise ConfigError(
                f"{endpoint}: GSSAPI (Kerberos) is not served; set {values.name(setting)} to some of "
                f"{', '.join(SERVED_MECHANISMS)}"
            )
        if name not in SERVED_MECHANISMS:
            raise ConfigError(f"{endpoint}: {name} is not served; there are {', '.join(SERVED_MECHANISMS)}")
    if not names:
        raise ConfigError(f"{endpoint}: nobody can log in; set {values.name(setting)}")
    return {name: _mechanism(values, name) for name in names}


def _mechanism(values: _Values, name: str) -> Mechanism:
    setting = values.name(JAAS_CONFIG, name)
    text = values.own(JAAS_CONFIG, name)
    jaas = None if text is None else parse_jaas(setting, text, name)
    if name == PLAIN and (jaas is None or not jaas.users):
        raise ConfigError(f'{setting}: PLAIN needs its users there, as user_<name>="<password>"')
    oauth = _oauth(values, jaas) if name == OAUTHBEARER else None
    return Mechanism(name, jaas, values.get("connections.max.reauth.ms", name), oauth)


def _oauth(values: _Values, jaas: JaasEntry | None) -> OAuthConfig:
    """ConfigError where tokens would not be verified: nothing unverified is ever accepted."""
    handler = values.get("sasl.server.callback.handler.class", OAUTHBEARER)
    if handler is not None and handler not in VERIFYING_HANDLERS:
        raise ConfigError(
            f"{values.name(HANDLER_CLASS, OAUTHBEARER)}={handler}: must be {VERIFYING_HANDLERS[0]}, or left out"
        )
    if jaas is not None and any(option.lower().startswith("unsecured") for option in jaas.options):
        raise ConfigError(
            f"{values.name(JAAS_CONFIG, OAUTHBEARER)}: asks for unsecured tokens, which are never accepted"
        )
    url = values.get("sasl.oauthbearer.jwks.endpoint.url", OAUTHBEARER)
    if not url:
        raise ConfigError(f"OAUTHBEARER needs the keys that tokens are verified with: set {values.name(JWKS_URL)}")
    check_jwks_url(JWKS_URL, url)
    return OAuthConfig(
        jwks_url=url,
        expected_audience=values.get("sasl.oauthbearer.expected.audience", OAUTHBEARER),
        expected_issuer=values.get("sasl.oauthbearer.expected.issuer", OAUTHBEARER) or None,
        clock_skew_s=values.get("sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER),
        subject_claim=values.get("sasl.oauthbearer.sub.claim.name", OAUTHBEARER),
        refresh_ms=values.get("sasl.oauthbearer.jwks.endpoint.refresh.ms", OAUTHBEARER),
        retry_backoff_ms=values.get("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", OAUTHBEARER),
        retry_backoff_max_ms=values.get("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", OAUTHBEARER),
    )


def _tls(values: _Values, endpoint: Endpoint) -> TlsConfig:
    tls = TlsConfig(
        keystore_type=values.get("ssl.keystore.type").upper(),
        keystore_location=values.get("ssl.keystore.location"),
        keystore_password=values.get("ssl.keystore.password"),
        keystore_key=values.get("ssl.keystore.key"),
        keystore_certificate_chain=values.get("ssl.keystore.certificate.chain"),
        key_password=values.get("ssl.key.password"),
        truststore_type=values.get("ssl.truststore.type").upper(),
        truststore_location=values.get("ssl.truststore.location"),
        truststore_password=values.get("ssl.truststore.password"),
        truststore_certificates=values.get("ssl.truststore.certificates"),
        # As in Kafka: for everybody it is meant for listeners where the certificate is the login.
        client_auth=values.get("ssl.client.auth")
        if endpoint.security_protocol == "SSL"
        else values.own("ssl.client.auth") or "none",
        enabled_protocols=values.get("ssl.enabled.protocols"),
        cipher_suites=values.get("ssl.cipher.suites"),
        endpoint_identification_algorithm=values.get("ssl.endpoint.identification.algorithm"),
    )
    if not tls.has_key:
        raise ConfigError(
            f"{endpoint}: TLS needs a key and certificates; set ssl.keystore.type=PEM and ssl.keystore.location"
        )
    return tls
