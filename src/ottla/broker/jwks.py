"""The keys by which tokens of OAUTHBEARER are verified: fetched at the start, then from time to time, kept in memory.

A token that names a key which is not known asks for them earlier: keys may have been replaced. That happens at most
once in a time that grows up to `retry.backoff.max.ms`, so that made-up names of keys do not load the server that has
them. While keys cannot be fetched, those that are known hold.

The address comes from the broker's file and from nowhere else. Redirects are not followed, and an address of the link
itself, where clouds keep their secrets, is refused (CVE-2025-27817).
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla.config.listener_security import ListenerSecurity
from ottla.config.oauth import OAuthConfig
from ottla.errors import ConfigError
from ottla.runtime.offload import Offload
from ottla.security.jwt import (
    Expected,
    InvalidKeysError,
    Key,
    TokenIdentity,
    UnknownKeyError,
    cryptography_parts,
    parse_keys,
    verify,
)

logger = logging.getLogger(__name__)

FETCH_TIMEOUT_S: Final = 10.0
BYTES_MAX: Final = 1 << 20

Fetch = Callable[[str], tuple[Key, ...]]


def fetch_keys(url: str) -> tuple[Key, ...]:
    """The keys at an address, in any thread; InvalidKeysError says why there are none."""
    try:
        data = _read_file(url) if urlsplit(url).scheme == "file" else _download(url)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise InvalidKeysError(f"{url}: {error}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        raise InvalidKeysError(f"{url}: {error}") from error
    if len(data) > BYTES_MAX:
        raise InvalidKeysError(f"{url}: has more than {BYTES_MAX} bytes")
    return parse_keys(data)


def _read_file(url: str) -> bytes:
    with open(unquote(urlsplit(url).path), "rb") as file:
        return file.read(BYTES_MAX + 1)


def _download(url: str) -> bytes:
    parts = urlsplit(url)
    port = parts.port or (http.client.HTTPS_PORT if parts.scheme == "https" else http.client.HTTP_PORT)
    for family, _, _, _, address in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM):
        if family in (socket.AF_INET, socket.AF_INET6) and _is_link_local(str(address[0])):
            raise ValueError("is an address of the link itself, which is not asked for keys")
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=FETCH_TIMEOUT_S) as response:
        return bytes(response.read(BYTES_MAX + 1))


def _is_link_local(text: str) -> bool:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None  # ::ffff:169.254.0.1
    return (mapped or address).is_link_local


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirect itself is the answer, which is an error."""


class Jwks:
    """The keys of one listener."""

    def __init__(
        self,
        config: OAuthConfig,
        offload: Offload,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        fetch: Fetch = fetch_keys,
    ) -> None:
        self._config = config
        self._offload = offload
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._fetch = fetch
        self._keys: tuple[Key, ...] = ()
        self._expected = Expected(
            config.expected_audience, config.expected_issuer, config.clock_skew_s, config.subject_claim
        )
        self._fetching = asyncio.Lock()
        self._pause_ms = config.retry_backoff_ms
        self._next_early_ms = 0

    async def open(self) -> None:
        """ConfigError where there are no keys: a broker without them would accept nobody."""
        cryptography_parts()
        try:
            await self._refresh()
        except InvalidKeysError as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from error

    async def run(self) -> None:
        """Fetches the keys again and again until it is cancelled."""
        pause_ms = self._config.refresh_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            try:
                await self._refresh()
                pause_ms = self._config.refresh_ms
                self._pause_ms = self._config.retry_backoff_ms
            except InvalidKeysError as error:
                logger.warning("the keys of OAUTHBEARER cannot be fetched: %s; those that are known hold", error)
                pause_ms = min(self._config.retry_backoff_max_ms, self._config.refresh_ms)

    async def verify(self, token: str) -> TokenIdentity:
        """Whom a token stands for; InvalidTokenError where it is not accepted."""
        keys = self._keys
        try:
            return await self._verify(token, keys)
        except UnknownKeyError:
            if not await self._refresh_early(keys):
                raise
        return await self._verify(token, self._keys)

    async def _verify(self, token: str, keys: tuple[Key, ...]) -> TokenIdentity:
        return await self._offload.computed(partial(verify, token, keys, self._expected, self._now_ms() / 1000))

    async def _refresh_early(self, known: tuple[Key, ...]) -> bool:
        """Whether there are other keys now than those that did not fit."""
        async with self._fetching:
            if self._keys is not known:
                return True  # somebody else has fetched them meanwhile
            now_ms = self._steady_ms()
            if now_ms < self._next_early_ms:
                return False
            self._next_early_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, self._config.retry_backoff_max_ms)
            try:
                self._keys = await self._offload.in_thread(partial(self._fetch, self._config.jwks_url))
            except InvalidKeysError as error:
                logger.warning("the keys of OAUTHBEARER cannot be fetched: %s; those that are known hold", error)
                return False
            return True

    async def _refresh(self) -> None:
        async with self._fetching:
            self._keys = await self._offload.in_thread(partial(self._fetch, self._config.jwks_url))


def jwks_of_listeners(
    listeners: Iterable[ListenerSecurity],
    offload: Offload,
    now_ms: Callable[[], int],
    steady_ms: Callable[[], int],
) -> dict[str, Jwks]:
    """The keys of each listener that accepts tokens, by its name."""
    return {
        listener.name: Jwks(mechanism.oauth, offload, now_ms, steady_ms)
        for listener in listeners
        for mechanism in listener.mechanisms.values()
        if mechanism.oauth is not None
    }
