"""How this broker shows other brokers who it is: by the protocol of the inter-broker listener."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.config.listener_security import JAAS_CONFIG, ListenerSecurity
from ottla.errors import ConfigError
from ottla.net.client import Connector
from ottla.net.login import Credentials, SecureConnector
from ottla.net.tls import client_context


def inter_broker_connector(config: BrokerConfig, inner: Connector) -> Connector:
    """The way to other brokers; `inner` is the one without TLS. ConfigError where a login is needed and not given."""
    security = config.security_of_listeners[config.inter_broker_listener]
    if security.protocol == "PLAINTEXT":
        return inner
    # The key of the listener is also the certificate that this broker shows.
    context = None if security.tls is None else client_context(security.tls)
    credentials = _credentials(config, security) if security.is_sasl else None
    return SecureConnector(context, credentials, inner)


def _credentials(config: BrokerConfig, security: ListenerSecurity) -> Credentials:
    name = config.sasl_mechanism_inter_broker_protocol
    mechanism = security.mechanisms.get(name)
    if mechanism is None:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={name}: is not enabled on listener {security.name}; enabled there: "
            f"{', '.join(security.mechanisms)}"
        )
    options = {} if mechanism.jaas is None else mechanism.jaas.options
    if not options.get("username") or "password" not in options:
        raise ConfigError(
            f"listener.name.{security.name.lower()}.{name.lower()}.{JAAS_CONFIG}: needs username and password, by "
            "which this broker logs in to others"
        )
    return Credentials(name, options["username"], options["password"])
