"""The transport that encrypts: many records at once, pieces of records, and a peer that does not read."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local_cluster.certificates import Authority
from ottla.net.tls import Tls

LARGE = bytes(range(256)) * 16_384  # 4 MiB


class Peer:
    """The other side, which decides itself when bytes are on their way."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        finally:
            self.socket.sendall(self._outgoing.read())

    def encrypted(self, *parts: bytes) -> bytes:
        """A record for each."""
        for part in parts:
            self._tls.write(part)
        return self._outgoing.read()

    def take(self) -> None:
        self._incoming.write(self.socket.recv(1 << 20))

    def read(self) -> bytes:
        found = bytearray()
        try:
            while True:
                found += self._tls.read(1 << 16)
        except ssl.SSLWantReadError:
            return bytes(found)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Tls, Peer]]:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.create("broker", ("localhost",)).keystore)
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        transport = Tls(one, server)
        peer = Peer(other, ssl.create_default_context(cafile=str(authority.truststore)))
        assert not peer.shake_hands()
        with pytest.raises(BlockingIOError):
            transport.recv_into(bytearray(10))
        assert transport.is_shaking_hands
        peer.take()
        assert peer.shake_hands()
        with pytest.raises(BlockingIOError):
            transport.recv_into(bytearray(10))
        assert not transport.is_shaking_hands
        yield transport, peer
        transport.close()


def test_many_small_records_are_read_at_once(both: tuple[Tls, Peer]) -> None:
    transport, peer = both
    parts = [b"%100d" % number for number in range(300)]
    peer.socket.sendall(peer.encrypted(*parts))
    room = bytearray(100_000)
    assert transport.recv_into(room) == 30_000
    assert room[:30_000] == b"".join(parts)


def test_what_is_left_of_a_read_is_pending_and_half_a_record_is_not(both: tuple[Tls, Peer]) -> None:
    transport, peer = both
    data = peer.encrypted(bytes(100), bytes(100))
    peer.socket.sendall(data[:-50])
    room = bytearray(60)
    assert transport.recv_into(room) == 60
    assert transport.has_pending
    assert transport.recv_into(room) == 40
    assert not transport.has_pending
    with pytest.raises(BlockingIOError):
        transport.recv_into(room)
    assert not transport.has_pending  # or the loop would ask without end
    peer.socket.sendall(data[-50:])
    assert transport.recv_into(room) == 60


def test_a_peer_that_reads_late_gets_every_byte_once(both: tuple[Tls, Peer]) -> None:
    transport, peer = both
    left, found = memoryview(LARGE), bytearray()
    is_full = False
    while left or len(found) < len(LARGE):
        try:
            left = left[transport.sendmsg([left[:1000], left[1000:]]) if left else 0 :]
        except BlockingIOError:
            is_full = True
            peer.take()
            found += peer.read()
        if not left and len(found) < len(LARGE):
            peer.take()
            found += peer.read()
    assert is_full
    assert found == LARGE


def test_a_peer_that_leaves_is_an_end_and_no_error(both: tuple[Tls, Peer]) -> None:
    transport, peer = both
    peer.socket.sendall(peer.encrypted(b"last"))
    peer.socket.shutdown(socket.SHUT_WR)
    room = bytearray(100)
    assert transport.recv_into(room) == 4
    assert transport.recv_into(room) == 0
