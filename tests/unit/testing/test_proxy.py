"""The proxy does to connections what it is told, and nothing else."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.proxy import Proxy
from ottla.testing.waiting import WAIT_S, wait_until

METADATA, API_VERSIONS = 3, 18


class Server(threading.Thread):
    """Answers every frame with its own bytes, and remembers what came."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        threads: list[threading.Thread] = []
        while True:
            connection, _ = self._listener.accept()
            if self._is_farewell(connection):
                break
            threads.append(threading.Thread(target=self._serve, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        self._listener.close()

    def _is_farewell(self, connection: socket.socket) -> bool:
        """Nobody but `stop` connects past the proxy and says nothing."""
        if connection.recv(1, socket.MSG_PEEK):
            return False
        connection.close()
        return True

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            try:
                while header := file.read(4):
                    body = file.read(struct.unpack(">i", header)[0])
                    self.seen.append(struct.unpack(">h", body[:2])[0])
                    connection.sendall(header + body)
            except OSError:
                return

    def stop(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as client:
        yield client


def frame(api_key: int, size: int = 10) -> bytes:
    body = struct.pack(">h", api_key) + bytes(size)
    return struct.pack(">i", len(body)) + body


def answered(client: socket.socket, data: bytes) -> bool:
    """Whether these bytes come back; False where the connection ends."""
    try:
        with client.makefile("rb") as file:
            return file.read(len(data)) == data
    except ConnectionError:
        return False


def test_everything_passes_in_both_directions(client: socket.socket):
    large = frame(METADATA, 1_000_000)
    sender = threading.Thread(target=client.sendall, args=(large,))
    sender.start()
    assert answered(client, large)
    sender.join()


def test_what_waits_at_a_cut_arrives_when_it_is_healed(proxy: Proxy, server: Server, client: socket.socket):
    client.sendall(frame(API_VERSIONS))
    assert answered(client, frame(API_VERSIONS))
    proxy.cut()
    client.sendall(frame(METADATA))
    assert server.seen == [API_VERSIONS]
    proxy.heal()
    assert answered(client, frame(METADATA))


def test_requests_of_one_api_are_held(proxy: Proxy, server: Server, client: socket.socket):
    proxy.hold(MetadataRequest)
    client.sendall(frame(API_VERSIONS) + frame(METADATA))
    assert answered(client, frame(API_VERSIONS))
    assert server.seen == [API_VERSIONS]
    proxy.heal()
    assert answered(client, frame(METADATA))


def test_an_answer_is_lost_and_the_request_was_carried_out(proxy: Proxy, server: Server, client: socket.socket):
    proxy.lose_response(ApiVersionsRequest)
    client.sendall(frame(METADATA))
    assert answered(client, frame(METADATA))
    client.sendall(frame(API_VERSIONS))
    assert not answered(client, frame(API_VERSIONS))
    wait_until(lambda: server.seen == [METADATA, API_VERSIONS])


def test_a_reset_ends_connections_and_new_ones_pass(proxy: Proxy, client: socket.socket):
    client.sendall(frame(METADATA))
    assert answered(client, frame(METADATA))
    proxy.reset()
    assert not answered(client, frame(METADATA))
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as again:
        again.sendall(frame(METADATA))
        assert answered(again, frame(METADATA))


def test_a_delayed_frame_arrives_all_the_same(proxy: Proxy, client: socket.socket):
    proxy.delay(0.01)
    client.sendall(frame(METADATA))
    assert answered(client, frame(METADATA))


def test_without_a_server_connections_end():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Proxy(port) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as client:
        assert not answered(client, b"x")
