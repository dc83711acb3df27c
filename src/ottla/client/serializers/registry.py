"""A client of a schema registry that caches its responses.

    registry = SchemaRegistry("http://127.0.0.1:8081")
    registry.register("orders-value", Schema('{"type": "string"}'))

Works with every registry that has the REST API of Confluent's. What an id means never changes, so it is asked once;
the latest version of a subject is asked again after `latest_max_age_s`. Calls block, except on an event loop: there
what is not known yet raises `LookupNeededError`, which clients answer by asking in a thread and going on then.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import SettingsError
from ottla.client.serializers.base import LookupNeededError
from ottla.client.serializers.registry_http import RegistryError, RegistryHttp, Token
from ottla.client.serializers.schemas import RegisteredSchema, Schema
from ottla.client.serializers.wire_format import SchemaKey
from ottla.runtime.clock import Clock, SystemClock

# How long a failure stands once it was raised, so that not every record of a batch asks again.
FAILURE_MAX_AGE_MS: Final = 1000
CACHE_SIZE_MIN: Final = 10  # one value can need several schemas at once


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How to reach a registry. Can be pickled, if the token is text or a function of a module."""

    urls: tuple[str, ...]
    basic_auth: str | None = field(default=None, repr=False)
    bearer_token: Token | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 10.0
    retries: int = 3
    cache_size: int = 1000
    latest_max_age_s: float = 60.0

    def __post_init__(self) -> None:
        if self.cache_size < CACHE_SIZE_MIN:
            raise SettingsError("cache_size", f"cache_size is at least {CACHE_SIZE_MIN}, not {self.cache_size}")

    def tls(self) -> ssl.SSLContext | None:
        """Of the files that are named; None leaves it to the system's authorities."""
        if self.ca_file is None and self.cert_file is None:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(slots=True)
class _Known:
    value: Any = None
    error: RegistryError | None = None
    until_ms: int | None = None  # by steady time; None: for ever, or an error that nobody has seen yet


class SchemaRegistry:
    """Any number of threads, serializers and clients may share one. Nothing stays open, so nothing is closed."""

    def __init__(
        self,
        urls: str | Sequence[str] | RegistrySettings,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        """`urls`: one, several with commas between them, or a sequence: the next one is asked where one fails.

        The other settings are the fields of `RegistrySettings`. `tls`: a context of the caller's own.
        """
        if not isinstance(urls, RegistrySettings):
            named = tuple(urls.split(",")) if isinstance(urls, str) else tuple(urls)
            try:
                urls = RegistrySettings(urls=named, **settings)
            except TypeError as error:
                raise SettingsError("registry", f"a schema registry has other settings: {error}") from error
        elif settings:
            raise SettingsError("registry", "settings come in a RegistrySettings or as keywords, not both")
        self.settings = urls
        self._own_tls = tls
        self._http = RegistryHttp(
            urls.urls,
            basic_auth=urls.basic_auth,
            bearer_token=urls.bearer_token,
            headers=dict(urls.headers),
            tls=tls or urls.tls(),
            timeout_s=urls.timeout_s,
            retries=urls.retries,
        )
        self._clock = clock or SystemClock()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._own_tls is not None:
            raise TypeError("a registry with a TLS context cannot be pickled: name ca_file and cert_file instead")
        return (SchemaRegistry, (self.settings,))

    # -- what serializers need: remembered ---------------------------------------------------------------------------

    def schema(self, key: SchemaKey, *, serialized: bool = False) -> Schema:
        """The schema of an id or a GUID. `serialized`: Protobuf as a descriptor, in base64, not as its source."""
        path = ("schemas", "guids", str(key)) if isinstance(key, UUID) else ("schemas", "ids", str(key))
        query = "format=serialized" if serialized else ""
        found: Schema = self._remembered(
            ("schema", key, serialized), lambda: Schema.of_json(self._http.request("GET", path, query))
        )
        return found

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Registers a schema under a subject, unless it is there; `IncompatibleSchemaError` where it may not be."""
        found: RegisteredSchema = self._remembered(
            ("register", subject, schema, normalize), lambda: self._register(subject, schema, normalize)
        )
        return found

    def _register(self, subject: str, schema: Schema, normalize: bool) -> RegisteredSchema:
        path, query = ("subjects", subject, "versions"), "normalize=true" if normalize else ""
        answer = self._http.request("POST", path, query, schema.as_json())
        return _registered({"subject": subject, **schema.as_json(), **answer})

    def registered(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Id and version of a schema that is registered under a subject; `SchemaNotFoundError` where it is not."""
        query = "normalize=true" if normalize else ""
        found: RegisteredSchema = self._remembered(
            ("registered", subject, schema, normalize),
            lambda: _registered(
                {**schema.as_json(), **self._http.request("POST", ("subjects", subject), query, schema.as_json())}
            ),
        )
        return found

    def version(self, subject: str, version: int, *, serialized: bool = False) -> RegisteredSchema:
        path = ("subjects", subject, "versions", str(version))
        query = "format=serialized" if serialized else ""
        found: RegisteredSchema = self._remembered(
            ("version", subject, version, serialized), lambda: _registered(self._http.request("GET", path, query))
        )
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject, as it was at most `latest_max_age_s` ago."""
        found: RegisteredSchema = self._remembered(
            ("latest", subject),
            lambda: _registered(self._http.request("GET", ("subjects", subject, "versions", "latest"))),
            max_age_ms=int(self.settings.latest_max_age_s * 1000),
        )
        return found

    # -- what people ask: as it is now ---------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return [str(name) for name in self._http.request("GET", ("subjects",))]

    def versions(self, subject: str) -> list[int]:
        return [int(number) for number in self._http.request("GET", ("subjects", subject, "versions"))]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """The versions that are gone. Permanently only after they were deleted once."""
        answer = self._http.request("DELETE", ("subjects", subject), "permanent=true" if permanent else "")
        with self._lock:
            self._known = OrderedDict((key, known) for key, known in self._known.items() if subject not in _parts(key))
        return [int(number) for number in answer]

    def is_compatible(self, subject: str, schema: Schema, version: int | str = "latest") -> bool:
        path = ("compatibility", "subjects", subject, "versions", str(version))
        return bool(self._http.request("POST", path, body=schema.as_json())["is_compatible"])

    def compatibility(self, subject: str | None = None) -> str:
        """The rule for new versions, of a subject or of the registry: BACKWARD, FORWARD, FULL, NONE, ..."""
        answer = self._http.request("GET", _config(subject), "defaultToGlobal=true" if subject else "")
        return str(answer["compatibilityLevel"])

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        self._http.request("PUT", _config(subject), body={"compatibility": level})

    # -- remembering ---------------------------------------------------------------------------------------------------

    def _remembered(self, key: Hashable, ask: Callable[[], Any], max_age_ms: int | None = None) -> Any:
        with self._lock:
            known = self._known.get(key)
            if known is not None and known.until_ms is not None and known.until_ms <= self._clock.steady_ms():
                known = None
            if known is not None:
                self._known.move_to_end(key)
                if known.error is not None and known.until_ms is None:
                    known.until_ms = self._clock.steady_ms() + FAILURE_MAX_AGE_MS
        if known is None:
            look_up = partial(self._look_up, key, ask, max_age_ms)
            if _is_on_loop():
                raise LookupNeededError("the schema registry has to be asked first, and not on an event loop", look_up)
            look_up()
            return self._remembered(key, ask, max_age_ms)
        if known.error is not None:
            raise known.error
        return known.value

    def _look_up(self, key: Hashable, ask: Callable[[], Any], max_age_ms: int | None) -> None:
        """Asks, and remembers what came of it, an error included: whoever wanted it looks again."""
        try:
            until_ms = None if max_age_ms is None else self._clock.steady_ms() + max_age_ms
            known = _Known(ask(), until_ms=until_ms)
        except RegistryError as error:
            known = _Known(error=error)
        except (KeyError, TypeError, ValueError) as error:
            known = _Known(error=RegistryError(f"the schema registry answered something else than asked: {error!r}"))
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > self.settings.cache_size:
                self._known.popitem(last=False)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _registered(data: dict[str, Any]) -> RegisteredSchema:
    guid = data.get("guid")
    version = data.get("version")
    return RegisteredSchema(
        int(data["id"]),
        Schema.of_json(data),
        data.get("subject"),
        None if version is None else int(version),
        None if guid is None else UUID(guid),
    )


def _config(subject: str | None) -> tuple[str, ...]:
    return ("config",) if subject is None else ("config", subject)


def _parts(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)
