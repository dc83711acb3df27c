"""A schema registry in this process, for tests: the REST API of Confluent's over memory.

    with SchemaRegistryServer() as server:
        registry = SchemaRegistry(server.url)

It keeps subjects, versions, ids, GUIDs and references by the registry's rules, with its error codes. Compatibility is
checked for Avro records only: fields that came or went without a default, and types that changed. Protobuf schemas are
given back as they were registered. It can be made to fail, to ask for credentials and to wait.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
LEVELS: Final = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
# What Avro lets a reader of the second kind make of what was written as the first.
PROMOTIONS: Final = frozenset(
    {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")}
    | {("string", "bytes"), ("bytes", "string")}
)


class Refusal(Exception):  # noqa: N818 (an answer, not a failure)
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class Stored:
    text: str
    kind: str
    references: tuple[tuple[str, str, int], ...]

    @property
    def guid(self) -> UUID:
        return UUID(bytes=hashlib.md5(repr(self).encode(), usedforsecurity=False).digest())

    def as_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            made["schemaType"] = self.kind
        if self.references:
            made["references"] = [{"name": name, "subject": on, "version": at} for name, on, at in self.references]
        return made


@dataclass(slots=True)
class Version:
    number: int
    schema_id: int
    schema: Stored
    is_deleted: bool = False


@dataclass
class Registry:
    """The rules, without the network."""

    level: str = "BACKWARD"
    has_guids: bool = True
    registers_with: Literal["everything", "id"] = "everything"  # what a registration answers; old registries: the id
    levels: dict[str, str] = field(default_factory=dict)
    subjects: dict[str, list[Version]] = field(default_factory=dict)
    ids: dict[Stored, int] = field(default_factory=dict)

    def answer(self, method: str, path: list[str], query: dict[str, str], body: Any) -> Any:
        """The value of a response; a Refusal says why there is none."""
        match method, path:
            case "GET", ["schemas", "types"]:
                return list(KINDS)
            case "GET", ["schemas", "ids", number]:
                return self._described(self._by_id(int(number)))
            case "GET", ["schemas", "guids", guid]:
                return self._described(self._by_guid(guid))
            case "GET", ["subjects"]:
                return sorted(name for name in self.subjects if self._live(name))
            case "POST", ["subjects", subject]:
                return self._registered(subject, self._parsed(body, query))
            case "DELETE", ["subjects", subject]:
                return self._delete(subject, query.get("permanent") == "true")
            case "GET", ["subjects", subject, "versions"]:
                return [version.number for version in self._found(subject)]
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, self._parsed(body, query))
            case "GET", ["subjects", subject, "versions", number]:
                return self._as_json(subject, self._version(subject, number))
            case "DELETE", ["subjects", subject, "versions", number]:
                version = self._version(subject, number)
                version.is_deleted = True
                return version.number
            case "POST", ["compatibility", "subjects", subject, "versions", number]:
                version = self._version(subject, number)
                return {
                    "is_compatible": _is_compatible(self._level(subject), version.schema, self._parsed(body, query))
                }
            case (("GET" | "PUT"), ["config", *rest]):
                return self._config(method, rest[0] if rest else None, query, body)
        raise Refusal(404, 404, "HTTP 404 Not Found")

    def _parsed(self, body: Any, query: dict[str, str]) -> Stored:
        kind = body.get("schemaType") or "AVRO"
        if kind not in KINDS:
            raise Refusal(422, 42201, f"Invalid schema type {kind}")
        references = tuple(
            (each["name"], each["subject"], int(each["version"])) for each in body.get("references") or ()
        )
        for _, subject, version in references:
            self._version(subject, str(version))
        text: str = body["schema"]
        if kind != "PROTOBUF":
            try:
                parsed = json.loads(text)
            except ValueError as error:
                raise Refusal(422, 42201, f"Invalid schema {text}") from error
            text = json.dumps(parsed, separators=(",", ":"), sort_keys=query.get("normalize") == "true")
        return Stored(text, kind, references)

    def _live(self, subject: str) -> list[Version]:
        return [version for version in self.subjects.get(subject, ()) if not version.is_deleted]

    def _found(self, subject: str) -> list[Version]:
        if live := self._live(subject):
            return live
        raise Refusal(404, 40401, f"Subject '{subject}' not found.")

    def _version(self, subject: str, number: str) -> Version:
        live = self._found(subject)
        if number in ("latest", "-1"):
            return live[-1]
        if not number.isdecimal() or int(number) < 1:
            raise Refusal(422, 42202, f"The specified version '{number}' is not a valid version id.")
        for version in live:
            if version.number == int(number):
                return version
        raise Refusal(404, 40402, f"Version {number} not found.")

    def _by_id(self, number: int) -> Stored:
        for schema, schema_id in self.ids.items():
            if schema_id == number:
                return schema
        raise Refusal(404, 40403, f"Schema {number} not found")

    def _by_guid(self, guid: str) -> Stored:
        for schema in self.ids:
            if self.has_guids and str(schema.guid) == guid:
                return schema
        raise Refusal(404, 40403, f"Schema {guid} not found")

    def _described(self, schema: Stored) -> dict[str, Any]:
        return {**schema.as_json(), "guid": str(schema.guid)} if self.has_guids else schema.as_json()

    def _register(self, subject: str, schema: Stored) -> Any:
        live = self._live(subject)
        for version in live:
            if version.schema == schema:
                return self._answer_to_registration(subject, version)
        against = live if self._level(subject).endswith("TRANSITIVE") else live[-1:]
        if not all(_is_compatible(self._level(subject), version.schema, schema) for version in against):
            raise Refusal(
                409, 409, f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
            )
        schema_id = self.ids.setdefault(schema, len(self.ids) + 1)
        versions = self.subjects.setdefault(subject, [])
        versions.append(Version(max((each.number for each in versions), default=0) + 1, schema_id, schema))
        return self._answer_to_registration(subject, versions[-1])

    def _answer_to_registration(self, subject: str, version: Version) -> dict[str, Any]:
        if self.registers_with == "id":
            return {"id": version.schema_id}
        made = self._as_json(subject, version)
        del made["subject"]
        return made

    def _registered(self, subject: str, schema: Stored) -> Any:
        for version in self._found(subject):
            if version.schema == schema:
                return self._as_json(subject, version)
        raise Refusal(404, 40403, "Schema not found")

    def _as_json(self, subject: str, version: Version) -> dict[str, Any]:
        made = {"subject": subject, "version": version.number, "id": version.schema_id, **version.schema.as_json()}
        return {**made, "guid": str(version.schema.guid)} if self.has_guids else made

    def _delete(self, subject: str, is_permanent: bool) -> list[int]:
        if is_permanent:
            if self._live(subject):
                raise Refusal(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
            if subject not in self.subjects:
                raise Refusal(404, 40401, f"Subject '{subject}' not found.")
            return [version.number for version in self.subjects.pop(subject)]
        gone = self._found(subject)
        for version in gone:
            version.is_deleted = True
        return [version.number for version in gone]

    def _level(self, subject: str) -> str:
        return self.levels.get(subject, self.level)

    def _config(self, method: str, subject: str | None, query: dict[str, str], body: Any) -> Any:
        if method == "PUT":
            level = body["compatibility"]
            if level not in LEVELS:
                raise Refusal(422, 42203, f"Invalid compatibility level {level}")
            if subject is None:
                self.level = level
            else:
                self.levels[subject] = level
            return {"compatibility": level}
        if subject is not None and subject not in self.levels and query.get("defaultToGlobal") != "true":
            raise Refusal(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return {"compatibilityLevel": self.level if subject is None else self._level(subject)}


def _is_compatible(level: str, old: Stored, new: Stored) -> bool:
    if level == "NONE":
        return True
    if old.kind != new.kind:
        return False
    if old.kind != "AVRO":
        return True
    before, after = json.loads(old.text), json.loads(new.text)
    backward = level.startswith("FORWARD") or _can_read(after, before)
    forward = level.startswith("BACKWARD") or _can_read(before, after)
    return backward and forward


def _can_read(reader: Any, writer: Any) -> bool:
    """Whether what was written with one schema can be read with the other, for records of simple fields."""
    if not isinstance(reader, dict) or not isinstance(writer, dict) or reader.get("type") != "record":
        return bool(reader == writer) or (isinstance(writer, str) and (writer, reader) in PROMOTIONS)
    if writer.get("type") != "record":
        return False
    written = {each["name"]: each["type"] for each in writer["fields"]}
    return all(
        _fits(written[each["name"]], each["type"]) if each["name"] in written else "default" in each
        for each in reader["fields"]
    )


def _fits(written: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        options = written if isinstance(written, list) else [written]
        return all(any(_can_read(choice, option) for choice in wanted) for option in options)
    return _can_read(wanted, written)


# -- the network -------------------------------------------------------------------------------------------------------


class SchemaRegistryServer:
    """Serves a registry on 127.0.0.1. `requests` has what was asked, as `METHOD /path`."""

    def __init__(
        self,
        *,
        basic_auth: str | None = None,
        bearer_token: str | None = None,
        has_guids: bool = True,
        before_answer: Callable[[str], None] | None = None,
    ) -> None:
        self.registry = Registry(has_guids=has_guids)
        self.requests: list[str] = []
        self.failures: list[int] = []  # HTTP codes of the next answers
        self._wanted = _authorization(basic_auth, bearer_token)
        self._before_answer = before_answer
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="schema-registry")

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, method: str, target: str, authorization: str | None, body: bytes) -> tuple[int, Any]:
        with self._lock:
            self.requests.append(f"{method} {target}")
        if self._before_answer is not None:
            self._before_answer(target)
        with self._lock:
            if self.failures:
                status = self.failures.pop(0)
                return status, {"error_code": status * 100 + 1, "message": "as the test asked"}
            if self._wanted is not None and authorization != self._wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
            parts = urlsplit(target)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            path = [unquote(part) for part in parts.path.split("/") if part]
            try:
                return 200, self.registry.answer(method, path, query, json.loads(body) if body else None)
            except Refusal as refusal:
                return refusal.status, {"error_code": refusal.code, "message": str(refusal)}


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for the answers that are being written
    block_on_close = True


def _authorization(basic_auth: str | None, bearer_token: str | None) -> str | None:
    if basic_auth is not None:
        return "Basic " + base64.b64encode(basic_auth.encode()).decode()
    return None if bearer_token is None else f"Bearer {bearer_token}"


def _handler_of(server: SchemaRegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, value = server.respond(self.command, self.path, self.headers.get("Authorization"), body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 (http.server's names)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (http.server's name)
            """Nothing: `requests` has them."""

    return Handler
