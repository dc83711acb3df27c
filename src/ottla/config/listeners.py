"""Listeners: `NAME://host:port` as typed values, and which security protocol each speaks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.errors import ConfigError

PORT_MAX = 65_535
# Addresses to listen on that nobody can connect to.
UNROUTABLE = ("0.0.0.0", "::")

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.%\w]*\]|[^:/\[\]]*):(?P<port>\d+)/?")
_FORM = "NAME://host:port, such as PLAINTEXT://127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener listens, or the address that clients get. No host: all interfaces; port 0: a free one."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(setting: str, texts: Iterable[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints that the setting lists; ConfigError names the one that is wrong and what would do."""
    return tuple(_parse_endpoint(setting, text, protocols) for text in texts)


def _parse_endpoint(setting: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ConfigError(f"{setting}={text}: must be {_FORM}")
    name, port = match["name"].upper(), int(match["port"])
    if port > PORT_MAX:
        raise ConfigError(f"{setting}={text}: the port must be at most {PORT_MAX}")
    if name not in protocols:
        raise ConfigError(
            f"{setting}={text}: no security protocol for {name}; add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return Endpoint(name, match["host"].strip("[]"), port, protocols[name])


def listener_name(text: str) -> str:
    """The name of the listener that `text` describes, also if the rest of it is wrong."""
    return text.partition("://")[0].upper()


def parse_protocol_map(setting: str, text: str, known: Iterable[str]) -> dict[str, str]:
    """`NAME:PROTOCOL,…` as a mapping."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in item.partition(":"))
        if not name or not separator:
            raise ConfigError(f"{setting}={text}: must be a list of NAME:PROTOCOL, and {item} is none")
        if protocol not in known:
            raise ConfigError(f"{setting}={text}: the protocol of {name} must be one of {', '.join(known)}")
        if protocols.setdefault(name, protocol) != protocol:
            raise ConfigError(f"{setting}={text}: {name} has two protocols")
    return protocols


def check_ports_differ(setting: str, endpoints: Iterable[Endpoint]) -> None:
    """ConfigError if two listeners share a name or a port; one IPv4 and one IPv6 address may share both."""
    seen: list[Endpoint] = []
    for endpoint in endpoints:
        for other in seen:
            if _ip_versions(endpoint, other) == {4, 6}:
                continue
            if endpoint.name == other.name:
                raise ConfigError(f"{setting}: {other} and {endpoint} have the same name")
            if endpoint.port == other.port != 0:
                raise ConfigError(f"{setting}: {other} and {endpoint} have the same port")
        seen.append(endpoint)


def _ip_versions(*endpoints: Endpoint) -> set[int]:
    versions: set[int] = set()
    for endpoint in endpoints:
        try:
            versions.add(ipaddress.ip_address(endpoint.host).version)
        except ValueError:  # a host name, or all interfaces
            versions.add(0)
    return versions
