"""From the settings of a client to its way to the network: TLS, and who the client says it is."""

from __future__ import annotations

from ottla.client.errors import SettingsError
from ottla.client.settings import ClientSettings
from ottla.config.jaas import parse_jaas
from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError
from ottla.net.client import Connector
from ottla.net.login import Credentials, SecureConnector
from ottla.net.tls import client_context
from ottla.net.tokens import TokenSource


def secure_connector(settings: ClientSettings, inner: Connector) -> Connector:
    """The way to brokers that `security.protocol` asks for; `inner` is the one without TLS."""
    protocol = settings.security_protocol
    if protocol == "PLAINTEXT":
        return inner
    try:
        context = None
        if protocol.endswith("SSL"):
            context = settings.ssl_context or client_context(_tls_config(settings))
        credentials = _credentials(settings) if protocol.startswith("SASL_") else None
    except SettingsError:
        raise
    except ConfigError as error:
        raise SettingsError("security_protocol", str(error)) from error
    return SecureConnector(context, credentials, inner)


def _tls_config(settings: ClientSettings) -> TlsConfig:
    return TlsConfig(
        keystore_type=settings.ssl_keystore_type,
        keystore_location=settings.ssl_certfile,
        keystore_password=settings.ssl_keystore_password,
        keystore_key=settings.ssl_key_pem,
        keystore_certificate_chain=settings.ssl_certificate_pem,
        key_location=settings.ssl_keyfile,
        key_password=settings.ssl_password,
        truststore_type=settings.ssl_truststore_type,
        truststore_location=settings.ssl_cafile,
        truststore_password=settings.ssl_truststore_password,
        truststore_certificates=settings.ssl_ca_pem,
        enabled_protocols=settings.ssl_enabled_protocols,
        cipher_suites=tuple(filter(None, (settings.ssl_ciphers or "").replace(":", ",").split(","))),
        endpoint_identification_algorithm="https" if settings.ssl_check_hostname else "",
    )


def _credentials(settings: ClientSettings) -> Credentials:
    mechanism = settings.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        if settings.sasl_token_provider is None:
            raise SettingsError(
                "sasl_token_provider", "OAUTHBEARER needs sasl_token_provider: a function that returns a token"
            )
        return Credentials(mechanism, tokens=TokenSource(settings.sasl_token_provider))
    username, password, is_token = settings.sasl_username, settings.sasl_password, False
    if settings.sasl_jaas_config is not None:
        if username is not None or password is not None:
            raise SettingsError("sasl_jaas_config", "give sasl_jaas_config, or sasl_username and sasl_password")
        options = parse_jaas("sasl.jaas.config", settings.sasl_jaas_config, mechanism).options
        username, password = options.get("username"), options.get("password")
        is_token = options.get("tokenauth", "").lower() == "true"
    if not username or password is None:
        raise SettingsError("sasl_username", f"{mechanism} needs sasl_username and sasl_password")
    return Credentials(mechanism, username, password, is_token=is_token)
