"""TLS listeners: the context of each, replaced while connections go on, and who a certificate says that somebody is."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.session import Session
from ottla.config.broker import BrokerConfig
from ottla.config.listener_security import ListenerSecurity
from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError, ProtocolError
from ottla.net.connection import Connection, Handled
from ottla.net.tls import Tls, server_context
from ottla.net.transport import Plain, Transport
from ottla.security.principals import ANONYMOUS, USER, distinguished_name, mapped_name, parse_mapping_rules

if TYPE_CHECKING:
    from ottla.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)

BY_CERTIFICATE = "SSL"  # what stands for a mechanism where the certificate was the login


class TlsListener:
    """The context that new connections of one listener get."""

    def __init__(self, security: ListenerSecurity) -> None:
        assert security.tls is not None
        self._config = security.tls
        self._files = _file_times(security.tls)
        self._context = server_context(security.tls)

    def open_transport(self, sock: socket.socket) -> Tls:
        return Tls(sock, self._context)

    def replacement(self, security: ListenerSecurity) -> TlsListener | None:
        """What new connections get by these settings; None where nothing has changed. ConfigError: they are no good."""
        assert security.tls is not None
        if security.tls == self._config and _file_times(security.tls) == self._files:
            return None
        return TlsListener(security)

    def take(self, other: TlsListener) -> None:
        """Connections that exist keep what they have."""
        self._config, self._files, self._context = other._config, other._files, other._context


class TlsListeners:
    """The listeners of a broker that encrypt, by name."""

    def __init__(self) -> None:
        self._listeners: dict[str, TlsListener] = {}

    def open(self, config: BrokerConfig) -> None:
        """ConfigError where a key or a certificate cannot be read."""
        for name, security in config.security_of_listeners.items():
            if security.tls is not None:
                self._listeners[name] = TlsListener(security)

    def transport_of(self, name: str) -> Callable[[socket.socket], Transport]:
        """What carries the bytes of a new connection of a listener."""
        return self._listeners[name].open_transport if name in self._listeners else Plain

    def check(self, config: BrokerConfig) -> None:
        """ConfigError if a listener could not be served with the key and the certificates of these settings."""
        for name, listener in self._listeners.items():
            listener.replacement(config.security_of_listeners[name])

    def reload(self, config: BrokerConfig) -> None:
        """New connections get what the settings say now; those that exist keep what they have."""
        for name, listener in self._listeners.items():
            new = listener.replacement(config.security_of_listeners[name])
            if new is not None:
                listener.take(new)
                logger.info("listener %s has a new key and certificates", name)


def _file_times(config: TlsConfig) -> tuple[int, ...]:
    paths = (config.keystore_location, config.truststore_location)
    try:
        return tuple(os.stat(path).st_mtime_ns for path in paths if path is not None)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error


class CertificateAuthenticator:
    """The handler of a listener where the certificate is the login: the first request finds out who it is."""

    def __init__(self, security: ListenerSecurity, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._rules = parse_mapping_rules(security.principal_mapping_rules)

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        session: Session = connection.session
        if session.mechanism is None:
            session.logged_in(self._principal(connection), BY_CERTIFICATE, None)
        return self._dispatcher(connection, frame)

    def _principal(self, connection: Connection) -> str:
        certificate = connection.peer_certificate
        if certificate is None:
            return ANONYMOUS
        try:
            name = distinguished_name(certificate)
        except ValueError as error:
            raise ProtocolError(f"a certificate that names nobody: {error}") from error
        mapped = mapped_name(name, self._rules)
        if mapped is None:
            raise ProtocolError(f"no rule of ssl.principal.mapping.rules is for {name!r}")
        return f"{USER}:{mapped}"
