"""Every API in every state of a login, frames that are too long: Apache Kafka and we end the same connections, and
say the same before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from ottla.protocol.codec import decode
from ottla.protocol.headers import decode_response_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import API_TABLE
from ottla.security.sasl.plain import plain_token
from ottla.testing.messages import smallest_message
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.security import ADMIN, password
from ottla.testing.side_by_side import Brokers
from ottla.testing.side_by_side.rights import EVERYTHING, Names, cases
from ottla.testing.side_by_side.rights_play import in_order
from ottla.testing.side_by_side.secured import log_in
from ottla.testing.side_by_side.transcript import Transcript

VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
LOGIN = SaslAuthenticateRequest(auth_bytes=plain_token(ADMIN, password(ADMIN)))
# Without those of Kafka 3 and StreamsGroupHeartbeat, which is not served here and would have a list null, not empty.
SERVED_BY_KAFKA_4 = API_TABLE.keys() - {4, 5, 6, 7, 88}
NOT_AN_API = (93, 999, -1)
ENDED = "ended"

Prepare = Callable[[RawClient], object]


def requests() -> Iterator[tuple[object, int]]:
    """At least one of every API of a broker's listener, with as much in it as we have."""
    asked = [(case.request, case.version) for case in cases(Names("u", UUID(int=9)))]
    yield from asked
    there = {message_schema_of(type(request)).key for request, _ in asked}
    for key in sorted(SERVED_BY_KAFKA_4 - there):
        api = API_TABLE[key]
        if api.advertised is not None and "broker" in (message_schema_of(api.request).listeners or ()):
            yield smallest_message(api.request, api.advertised.last), api.advertised.last


def outcomes(brokers: Brokers, prepare: Prepare, frames: list[bytes]) -> list[tuple[Any, Any]]:
    """What comes back to each frame, on a connection of its own, from Kafka and from us: a frame, or the end."""

    def ask(bootstrap_servers: str) -> list[Any]:
        clients = [RawClient(bootstrap_servers) for _ in frames]
        try:
            for client in clients:
                prepare(client)
            for client, frame in zip(clients, frames, strict=True):
                client.socket.sendall(frame)
            return [_outcome(client) for client in clients]
        finally:
            for client in clients:
                client.close()

    with ThreadPoolExecutor() as threads:
        theirs, ours = threads.map(ask, (brokers.kafka, brokers.ours))
    return list(zip(theirs, ours, strict=True))


def _outcome(client: RawClient) -> bytes | str:
    try:
        return client.receive_frame()
    except ConnectionEnded:
        return ENDED


def encoded(request: object, version: int) -> bytes:
    client = RawClient.__new__(RawClient)
    client.client_id, client._correlation_id = "raw", 0
    return client.encoded(request, version)[1]


def nothing(client: RawClient) -> None:
    pass


def shake_hands(client: RawClient) -> None:
    assert not client.ask(HANDSHAKE, 1).error_code


def learn_versions(client: RawClient) -> None:
    assert not client.ask(VERSIONS, 3).error_code


def test_before_a_login_nothing_but_its_own_messages_is_answered(secured: Brokers) -> None:
    login = {17, 18}
    asked = [each for each in requests() if message_schema_of(type(each[0])).key not in login]
    frames = [encoded(*each) for each in asked]
    frames += [struct.pack(">ihhih", 10, key, 0, 1, -1) for key in (*NOT_AN_API, 4, 5, 6, 7)]
    for prepare in (nothing, learn_versions):
        for theirs, ours in outcomes(secured, prepare, frames):
            assert (theirs, ours) == (ENDED, ENDED)


def test_versions_are_told_once_and_a_handshake_as_often_as_its_mechanism_is_unknown(secured: Brokers) -> None:
    frames = [encoded(VERSIONS, 3), encoded(HANDSHAKE, 1), encoded(SaslHandshakeRequest(mechanism="plain"), 1)]
    for prepare in (nothing, learn_versions):
        (theirs_known, known), *handshakes = outcomes(secured, prepare, frames)
        assert (theirs_known == ENDED) is (known == ENDED) is (prepare is learn_versions)
        for theirs, ours in handshakes:
            assert theirs == ours


def test_in_the_middle_of_a_login_every_other_request_is_refused_alike(secured: Brokers) -> None:
    asked = [each for each in requests() if message_schema_of(type(each[0])).key not in (36, 18)]
    found = outcomes(secured, shake_hands, [encoded(*each) for each in asked])
    differing = []
    for (request, version), (theirs, ours) in zip(asked, found, strict=True):
        seen = [_seen(request, version, frame) for frame in (theirs, ours)]
        if seen[0] != seen[1]:
            differing.append(f"{type(request).__name__} v{version}: Kafka says {seen[0]}, we say {seen[1]}")
    assert not differing, "\n".join(differing)


def _seen(request: object, version: int, frame: bytes | str) -> Any:
    if isinstance(frame, str):
        return frame
    key = message_schema_of(type(request)).key
    assert key is not None
    _, position = decode_response_header(frame, key, version)
    answer: Any = decode(API_TABLE[key].response, frame, version, position)
    if key == 3:
        for topic in answer.topics:
            topic.name = topic.name or None  # of one that was named by id: empty there, null here
    return Transcript().plain(in_order(answer))


def test_tokens_that_are_wrong_or_damaged_get_the_same_answer(secured: Brokers) -> None:
    tokens = [
        plain_token(ADMIN, "wrong"),
        plain_token("nobody", password(ADMIN)),
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0",
        f"\0{ADMIN}\0".encode(),
        f"\0\0{password(ADMIN)}".encode(),
        f"{EVERYTHING}\0{ADMIN}\0{password(ADMIN)}".encode(),
        f"{ADMIN}\0{ADMIN}\0{password(ADMIN)}".encode(),
        f"\0{ADMIN}\0{password(ADMIN)}\0".encode(),
        f" \0{ADMIN}\0{password(ADMIN)}".encode(),
        f"\0{ADMIN.upper()}\0{password(ADMIN)}".encode(),
    ]
    frames = [encoded(SaslAuthenticateRequest(auth_bytes=token), version) for token in tokens for version in (0, 2)]
    for token, (theirs, ours) in zip(
        [(token, version) for token in tokens for version in (0, 2)],
        outcomes(secured, shake_hands, frames),
        strict=True,
    ):
        request = SaslAuthenticateRequest(auth_bytes=token[0])
        assert _seen(request, token[1], theirs) == _seen(request, token[1], ours), token


def test_frames_that_are_too_long_or_no_frames_end_the_connection(secured: Brokers) -> None:
    before = [length.to_bytes(4, signed=True) + b"\0\x12\0\0" for length in (2**31 - 1, 524_289, -1, -(2**31), 0)]
    for prepare in (nothing, learn_versions, shake_hands):
        assert set(outcomes(secured, prepare, before)) == {(ENDED, ENDED)}, prepare

    def logged_in(client: RawClient) -> None:
        log_in(client, EVERYTHING)

    after = [length.to_bytes(4, signed=True) + b"\0\x12\0\0" for length in (2**31 - 1, 104_857_601, -1)]
    assert set(outcomes(secured, logged_in, after)) == {(ENDED, ENDED)}


def test_after_a_login_its_messages_are_refused_and_the_connection_goes_on(secured: Brokers) -> None:
    def logged_in(client: RawClient) -> None:
        log_in(client, EVERYTHING)

    frames = [encoded(HANDSHAKE, version) for version in (0, 1)] + [encoded(LOGIN, version) for version in (0, 1, 2)]
    versions = [0, 1, 0, 1, 2]
    for version, frame, (theirs, ours) in zip(
        versions, frames, outcomes(secured, logged_in, [frame + frames[1] for frame in frames]), strict=True
    ):
        request = HANDSHAKE if frame in frames[:2] else LOGIN
        assert _seen(request, version, theirs) == _seen(request, version, ours)
        assert not isinstance(ours, str)
