"""Listeners: what Kafka's settings of sockets do to ours."""

from __future__ import annotations

import asyncio
import errno
import select
import socket

import pytest

from ottla.net.server import Server, ServerLimits, bind_socket, open_listener, plain_ip

SMALL = 20_000


@pytest.mark.parametrize(("asked", "is_set"), [(SMALL, True), (-1, False)])
def test_buffer_sizes_are_those_of_the_settings_or_of_the_system(asked: int, is_set: bool) -> None:
    async def scenario() -> None:
        server = Server(asyncio.get_running_loop(), ServerLimits(send_buffer_bytes=asked))
        with bind_socket("127.0.0.1", 0) as other:
            usual = other.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        listening = open_listener("127.0.0.1", 0, receive_buffer_bytes=asked, backlog=50)
        listener = server.listen("PLAINTEXT", listening, lambda connection, frame: None)
        # The system counts its own bookkeeping in, twice as much as was asked for.
        expected = 2 * SMALL if is_set else usual
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == expected
        server.start()
        with socket.create_connection(listener.address):
            while not server.connections:
                await asyncio.sleep(0.001)
            (connection,) = server.connections
            accepted = connection._transport.socket
            if is_set:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * SMALL
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * SMALL
        server.stop_accepting()
        await server.drain(30)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="without it nobody is watched")
def test_a_connection_that_cannot_be_watched_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have taken the last descriptor there was."""

    def full() -> select.epoll:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        monkeypatch.setattr(select, "epoll", full)
        server = Server(loop, ServerLimits())
        listening = open_listener("127.0.0.1", 0, receive_buffer_bytes=-1, backlog=50)
        listener = server.listen("PLAINTEXT", listening, lambda connection, frame: [b"\0\0\0\1y"])
        server.start()
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(b"\0\0\0\1x")
        assert await reader.readexactly(5) == b"\0\0\0\1y"
        writer.close()
        server.stop_accepting()
        await server.drain(30)
        assert not failures

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:a00:1", "::ffff:a00:1"),
    ],
)
def test_an_address_is_named_as_limits_and_acls_name_it(address: str, expected: str) -> None:
    assert plain_ip(address) == expected


def test_a_peer_of_ipv4_at_a_socket_of_ipv6_is_one_of_ipv4() -> None:
    async def scenario() -> None:
        hosts: list[str] = []
        server = Server(asyncio.get_running_loop(), ServerLimits())
        try:
            listening = open_listener("::", 0, receive_buffer_bytes=-1, backlog=50)
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener = server.listen(
            "PLAINTEXT",
            listening,
            lambda connection, frame: None,
            open_session=lambda listener_name, client_host: hosts.append(client_host),
        )
        server.start()
        with socket.create_connection(("127.0.0.1", listener.address[1])):
            while not server.connections:
                await asyncio.sleep(0.001)
        assert hosts == ["127.0.0.1"]
        server.stop_accepting()
        await server.drain(30)

    asyncio.run(asyncio.wait_for(scenario(), 60))
