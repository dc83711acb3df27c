"""The transport that encrypts: many records at once, pieces of records, and a peer that does not read."""

from __future__ import annotations

import _ssl
import ctypes
import fcntl
import socket
import ssl
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.local_cluster.certificates import Authority
from ottla.net.tls import CIPHERED_BYTES, EMPTY_BYTES_MAX, HANDSHAKE_BYTES_MAX, RECORD_BYTES_MAX, Tls

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


def server_of(authority: Authority) -> ssl.SSLContext:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.create("broker", ("localhost",)).keystore)
    return server


class KeyChanger:
    """A peer that changes its keys again and again, which `ssl` cannot: OpenSSL itself."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        try:
            self._ssl = ctypes.CDLL(_ssl.__file__)
            for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
                getattr(self._ssl, name).restype = ctypes.c_void_p
        except (OSError, AttributeError):
            pytest.skip("the OpenSSL of this Python cannot be called")
        context = self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method()))
        self._one = ctypes.c_void_p(self._ssl.SSL_new(ctypes.c_void_p(context)))
        self._ssl.SSL_set_fd(self._one, sock.fileno())
        self._ssl.SSL_set_connect_state(self._one)

    def shake_hands(self) -> bool:
        return bool(self._ssl.SSL_do_handshake(self._one) == 1)

    def change_keys(self, *, asks_for_ours: bool) -> bool:
        """False where the socket is full: it will have been one of keys once there is room."""
        if not self.shake_hands():
            return False
        assert self._ssl.SSL_key_update(self._one, int(asks_for_ours)) == 1
        return self.shake_hands()

    def write(self, data: bytes) -> None:
        assert self._ssl.SSL_write(self._one, data, len(data)) == len(data)


@contextmanager
def key_changer(directory: Path) -> Iterator[tuple[Tls, KeyChanger]]:
    # Of TCP: a socket pair keeps hundreds of bytes for each small message.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = socket.create_connection(listening.getsockname())
        one, _ = listening.accept()
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    with one, other:
        transport, peer = Tls(one, server_of(Authority(directory))), KeyChanger(other)
        while not peer.shake_hands() or transport.is_shaking_hands:
            with pytest.raises(BlockingIOError):
                transport.recv_into(bytearray(10))
        yield transport, peer


def waiting_bytes(transport: Tls) -> int:
    """What has arrived, and nobody has received."""
    found = bytearray(4)
    fcntl.ioctl(transport.socket, termios.FIONREAD, found)
    return int.from_bytes(found, sys.byteorder)


def test_a_peer_that_changes_its_keys_without_end_costs_a_turn_and_its_connection(tmp_path: Path) -> None:
    with key_changer(tmp_path) as (transport, peer):
        while peer.change_keys(asks_for_ours=False):
            pass
        received: list[int] = []
        with pytest.raises(ConnectionAbortedError, match="without data"):  # noqa: PT012 - one of many
            for _ in range(20):
                while waiting_bytes(transport) < 2 * CIPHERED_BYTES and peer.change_keys(asks_for_ours=False):
                    pass
                before = waiting_bytes(transport)
                with pytest.raises(BlockingIOError):
                    transport.recv_into(bytearray(1000))
                received.append(before - waiting_bytes(transport))
        assert max(received) <= CIPHERED_BYTES
        assert sum(received) <= EMPTY_BYTES_MAX


def test_a_little_data_among_many_changes_of_keys_is_taken_a_little_at_a_time(tmp_path: Path) -> None:
    with key_changer(tmp_path) as (transport, peer):
        taken = 0
        for number in range(20):
            for _ in range(1000):
                assert peer.change_keys(asks_for_ours=False)
            peer.write(b"x")
            before = waiting_bytes(transport)
            with suppress(BlockingIOError):
                taken += transport.recv_into(bytearray(1000))
            if number:
                assert before - waiting_bytes(transport) <= RECORD_BYTES_MAX
        assert taken >= 10


def test_a_peer_that_asks_for_changes_of_keys_and_reads_none_fills_no_memory(tmp_path: Path) -> None:
    def ask_for_changes(transport: Tls, peer: KeyChanger) -> None:
        for number in range(500_000):
            peer.change_keys(asks_for_ours=True)
            if number % 100 == 0:
                peer.write(b"x")
                with suppress(BlockingIOError):
                    transport.recv_into(bytearray(1000))

    with key_changer(tmp_path) as (transport, peer), pytest.raises(ConnectionAbortedError, match="reads no answer"):
        ask_for_changes(transport, peer)


def test_a_handshake_without_end_is_given_up(tmp_path: Path) -> None:
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        transport = Tls(one, server_of(Authority(tmp_path)))
        # A ClientHello that says to be as long as it may be, in records of one byte.
        record = b"\x16\x03\x01\x00\x01"
        hello = [record + bytes([each]) for each in b"\x01\x01\xff\xff"] + [record + b"\0"] * (HANDSHAKE_BYTES_MAX // 5)
        data = memoryview(b"".join(hello))
        with pytest.raises(OSError):  # noqa: PT011, PT012 - ours, or the one of an OpenSSL that takes less
            while data:
                data = data[other.send(data[:10_000]) :]
                with pytest.raises(BlockingIOError):
                    transport.recv_into(bytearray(10))


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Tls, Peer]]:
    authority = Authority(tmp_path)
    server = server_of(authority)
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
