"""Peers that come in great numbers and never get in: half a login, half a handshake, no handshake's end, no password.

Each function holds its connections open, or has had its answers, when it returns; the stack closes them.
"""

from __future__ import annotations

import selectors
import ssl
from contextlib import ExitStack

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.sasl.plain import plain_token
from ottla.testing.raw_client import RawClient
from ottla.testing.waiting import WAIT_S

PIECES = 8  # in which a slow handshake comes
AT_ONCE = 50  # logins in flight
ANSWER_BYTES_MAX = 65_536


def connections(address: str, count: int, stack: ExitStack) -> list[RawClient]:
    return [stack.enter_context(RawClient(address)) for _ in range(count)]


def begin_logins(address: str, count: int, stack: ExitStack) -> None:
    """Logins that stop in the middle of a message, at three different ones."""
    messages: tuple[tuple[object, int], ...] = (
        (ApiVersionsRequest(client_software_name="flood", client_software_version="1"), 3),
        (SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1),
        (SaslAuthenticateRequest(auth_bytes=bytes(100_000)), 2),
    )
    for number, client in enumerate(connections(address, count, stack)):
        request, version = messages[number % len(messages)]
        if isinstance(request, SaslAuthenticateRequest):
            client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        _, frame = client.encoded(request, version)
        client.socket.sendall(frame[: len(frame) // 2])


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    handshake = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        handshake.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody has answered")


def begin_handshakes(address: str, count: int, stack: ExitStack) -> None:
    """Handshakes that come byte by byte, all at the same time, and stop before their first message is whole."""
    hello = client_hello()[:-1]
    held = connections(address, count, stack)
    size = len(hello) // PIECES + 1
    for position in range(0, len(hello), size):
        for client in held:
            client.socket.sendall(hello[position : position + size])


def leave_handshakes(address: str, count: int, stack: ExitStack) -> None:
    """Handshakes whose first message is whole, so that the broker signs; nobody goes on with them."""
    hello = client_hello()
    held = connections(address, count, stack)
    for client in held:
        client.socket.sendall(hello)
    for client in held:
        assert client.socket.recv(ANSWER_BYTES_MAX)


def try_passwords(address: str, count: int) -> int:
    """Wrong passwords, `AT_ONCE` at a time; how many were answered, which is with an error."""
    refused = 0
    for _ in range(0, count, AT_ONCE):
        with ExitStack() as stack, selectors.DefaultSelector() as waiting:
            for client in connections(address, AT_ONCE, stack):
                client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                client.send(SaslAuthenticateRequest(auth_bytes=plain_token("alice", "wrong")), 0)
                waiting.register(client.socket, selectors.EVENT_READ, client)
            while waiting.get_map():
                for key, _ in waiting.select(WAIT_S):
                    waiting.unregister(key.fileobj)
                    refused += _is_refused(key.data)
    return refused


def _is_refused(client: RawClient) -> bool:
    handshake, _ = client.receive()
    answer, _ = client.receive()
    assert handshake.error_code == 0
    return bool(answer.error_code)
