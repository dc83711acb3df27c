"""Requests to a schema registry: JSON over HTTP, with retries, and another URL where one does not answer.

Each request has a connection of its own: what it brings is kept by `registry`, so there are few of them. Calls block;
nothing here is for an event loop.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ottla.client.errors import SettingsError
from ottla.errors import OttlaError

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
RESPONSE_BYTES_MAX: Final = 16 << 20
READ_BYTES: Final = 64 << 10
MAY_PASS: Final = frozenset({408, 429, 500, 502, 503, 504})
PAUSE_S: Final = 0.2
PAUSE_S_MAX: Final = 5.0


class RegistryError(OttlaError):
    """A schema registry refused a request: `status` is HTTP's, `code` its own, such as 40401."""

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class SchemaNotFoundError(RegistryError):
    """There is no such subject, version or schema."""


class IncompatibleSchemaError(RegistryError):
    """The schema is not compatible with those registered before."""


class InvalidSchemaError(RegistryError):
    """The registry cannot read the schema, or the version asked for is not one."""


class RegistryUnavailableError(RegistryError):
    """No URL of the registry answered in time."""


_ERRORS: Final[dict[int, type[RegistryError]]] = {
    404: SchemaNotFoundError,
    409: IncompatibleSchemaError,
    422: InvalidSchemaError,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL of a registry, taken apart."""

    url: str  # without user and password: for messages
    is_tls: bool
    host: str
    port: int | None
    path: str
    credentials: str | None


def endpoint_of(url: str) -> Endpoint:
    parts: SplitResult = urlsplit(url.strip())
    try:
        port = parts.port
    except ValueError as error:
        raise SettingsError("urls", f"{url!r} has a port that is not a number") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("urls", f"{url!r} is not the URL of a schema registry: http://host:8081")
    credentials = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return Endpoint(shown, parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"), credentials)


Token = str | Callable[[], str]


class RegistryHttp:
    """Any thread may use it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        basic_auth: str | None = None,
        bearer_token: Token | None = None,
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
        retries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._endpoints = [endpoint_of(url) for url in urls]
        if not self._endpoints:
            raise SettingsError("urls", "a schema registry needs a URL")
        self._basic_auth = basic_auth
        self._bearer_token = bearer_token
        self._headers = dict(headers or {})
        self._tls = tls
        self._timeout_s = timeout_s
        self._retries = retries
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._first = 0  # the URL that answered last

    def request(self, method: str, path: Sequence[str], query: str = "", body: Any = None) -> Any:
        """The response as a value. The whole call ends within `timeout_s`, retries included."""
        deadline = time.monotonic() + self._timeout_s
        target = "/" + "/".join(quote(part, safe="") for part in path) + (f"?{query}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        causes: dict[str, str] = {}
        for attempt in range(self._retries + 1):
            for number in range(len(self._endpoints)):
                index = (self._first + number) % len(self._endpoints)
                endpoint = self._endpoints[index]
                try:
                    status, answer = self._ask(endpoint, method, target, data, deadline)
                except (OSError, http.client.HTTPException) as error:
                    causes[endpoint.url] = str(error) or type(error).__name__
                    continue
                if status not in MAY_PASS:
                    self._first = index
                    return _value(status, answer, f"{method} {target} at {endpoint.url}")
                causes[endpoint.url] = f"HTTP {status} {_message(answer)}".strip()
            pause_s = self._rng.uniform(0, min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
            if attempt == self._retries or time.monotonic() + pause_s >= deadline:
                break
            self._sleep(pause_s)
        said = "; ".join(f"{url}: {cause}" for url, cause in causes.items())
        raise RegistryUnavailableError(f"the schema registry did not answer {method} {target}: {said}")

    def _ask(
        self, endpoint: Endpoint, method: str, target: str, data: bytes | None, deadline: float
    ) -> tuple[int, bytes]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no answer within {self._timeout_s:g} s")
        connection: http.client.HTTPConnection
        if endpoint.is_tls:
            context = self._tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=left_s, context=context)
        else:
            connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=left_s)
        try:
            connection.request(method, endpoint.path + target, data, self._headers_for(endpoint, data))
            response = connection.getresponse()
            return response.status, _read(response, deadline)
        finally:
            connection.close()

    def _headers_for(self, endpoint: Endpoint, data: bytes | None) -> dict[str, str]:
        headers = {"Accept": f"{MEDIA_TYPE}, application/json", **self._headers}
        if data is not None:
            headers["Content-Type"] = MEDIA_TYPE
        credentials = self._basic_auth or endpoint.credentials
        if self._bearer_token is not None:
            token = self._bearer_token() if callable(self._bearer_token) else self._bearer_token
            headers["Authorization"] = f"Bearer {token}"
        elif credentials is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
        return headers


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body; a registry that sends too much, or too slowly, is not waited for."""
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > RESPONSE_BYTES_MAX:
            raise http.client.HTTPException(f"more than {RESPONSE_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the response did not end in time")
    return b"".join(pieces)


def _value(status: int, answer: bytes, what: str) -> Any:
    if 200 <= status < 300:
        try:
            return json.loads(answer)
        except ValueError as error:
            raise RegistryError(f"{what}: the answer is not JSON: {answer[:100]!r}", status) from error
    code = _field(answer, "error_code")
    kind = _ERRORS.get(status, RegistryError)
    raise kind(f"{what}: {_message(answer) or f'HTTP {status}'}", status, code if isinstance(code, int) else 0)


def _field(answer: bytes, name: str) -> Any:
    try:
        found = json.loads(answer)
    except ValueError:
        return None
    return found.get(name) if isinstance(found, dict) else None


def _message(answer: bytes) -> str:
    found = _field(answer, "message")
    return found if isinstance(found, str) else ""
