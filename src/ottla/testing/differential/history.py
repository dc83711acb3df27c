"""A history: requests in their order, each with a connection to go over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.versions import API_TABLE, Api

CLIENT_ID: Final = "raw"


@dataclass(frozen=True, slots=True)
class BodyChange:
    """What is done to the bytes of a body: cut to a part, one byte replaced, bytes added."""

    kept: float = 1.0
    at: float | None = None
    byte: int = 0
    added: bytes = b""

    def applied(self, body: bytes) -> bytes:
        changed = bytearray(body[: int(len(body) * self.kept)])
        if self.at is not None and changed:
            changed[int(self.at * len(changed))] = self.byte
        return bytes(changed + self.added)


@dataclass(frozen=True, slots=True)
class Step:
    """One request: a message with references in it, and what else is done to its bytes."""

    api_key: int
    version: int
    request: Any
    connection: int = 0
    header_version: int | None = None  # what the header says in place of the truth
    change: BodyChange | None = None

    @property
    def api(self) -> Api:
        return API_TABLE[self.api_key]

    @property
    def is_sound(self) -> bool:
        """Whether its bytes are those of its message."""
        return self.header_version is None and self.change is None

    def frame(self, request: Any, correlation_id: int) -> bytes:
        """The bytes of the request, whose references are filled in, without their length."""
        version = self.version if self.header_version is None else self.header_version
        header = RequestHeader(
            request_api_key=self.api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=CLIENT_ID,
        )
        body = bytes(encode(request, self.version))
        return bytes(encode_request_header(header)) + (self.change.applied(body) if self.change else body)

    def __str__(self) -> str:
        notes = [f"on connection {self.connection}"] if self.connection else []
        notes += [f"in a frame of version {self.header_version}"] if self.header_version is not None else []
        notes += [str(self.change)] if self.change else []
        return ", ".join([f"{self.api.name} v{self.version}: {self.request!r}", *notes])


@dataclass(frozen=True, slots=True)
class History:
    """The steps by their numbers in the history of the seed, of which some may be left out."""

    seed: int
    steps: tuple[tuple[int, Step], ...]

    def __len__(self) -> int:
        return len(self.steps)

    def only(self, numbers: set[int]) -> History:
        return History(self.seed, tuple((number, step) for number, step in self.steps if number in numbers))
