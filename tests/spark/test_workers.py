"""Clients that are kept between tasks."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions
from ottla.net.client import ConnectionOptions
from ottla.spark import workers
from ottla.spark.workers import CLIENTS_MAX, IDLE_S, Clients, client_for
from ottla.testing.broker import Broker
from ottla.testing.ports import free_port


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def is_open(client: Blocking) -> bool:
    return client._thread.is_running


def named(number: int) -> ClientOptions:
    return ClientOptions(ConnectionOptions(client_id=f"task-{number}"))


def test_the_next_task_finds_the_client_of_the_last_one(ottla_session_broker):
    clients = Clients()
    with clients.client_for(ottla_session_broker.bootstrap_servers) as first:
        first.wait(first.cluster.view())
    with clients.client_for(ottla_session_broker.bootstrap_servers, ClientOptions()) as second:
        assert second is first
    with clients.client_for(ottla_session_broker.bootstrap_servers, named(1)) as other:
        assert other is not first
    clients.close()
    assert not is_open(first)
    assert not is_open(other)


def test_a_client_is_closed_when_it_was_idle_for_long_and_not_while_it_is_used(ottla_session_broker):
    clock = Clock()
    clients = Clients(clock)
    servers = ottla_session_broker.bootstrap_servers
    with clients.client_for(servers, named(1)) as used:
        with clients.client_for(servers, named(2)) as idle:
            pass
        clock.now += IDLE_S + 1
        with clients.client_for(servers, named(3)):
            assert not is_open(idle)
            assert is_open(used)
            clients.close()
            assert is_open(used)
    clients.close()
    assert not is_open(used)


def test_only_so_many_are_kept(ottla_session_broker):
    clients = Clients()
    made = []
    for number in range(CLIENTS_MAX + 2):
        with clients.client_for(ottla_session_broker.bootstrap_servers, named(number)) as client:
            made.append(client)
    with clients.client_for(ottla_session_broker.bootstrap_servers, named(CLIENTS_MAX + 1)) as last:
        assert last is made[-1]
    assert [is_open(client) for client in made] == [False] + [True] * (CLIENTS_MAX + 1)
    clients.close()


def test_a_process_made_by_fork_makes_its_own_connection(ottla_session_broker):
    servers = ottla_session_broker.bootstrap_servers
    with client_for(servers) as client:
        pass
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with client_for(servers) as own:
                own.wait(own.cluster.view())
                os.write(writing, b"own" if own is not client else b"shared")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"own"
    os.waitpid(child, 0)
    with client_for(servers) as again:
        assert again is client
        again.wait(again.cluster.view())


def test_a_broker_that_comes_a_little_later_is_waited_for(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    broker = Broker(directory=tmp_path, listen=address)
    starting = threading.Timer(0.2, broker.start)
    starting.start()
    clients = Clients()
    with clients.client_for(address) as client:
        assert client.wait(client.cluster.view()).nodes
    clients.close()
    starting.join()
    broker.stop()


def test_an_address_that_never_worked_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FIRST_CONTACT_S", 0.1)
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*place.getsockname())
        with (
            pytest.raises(TimedOutError, match=f"given up after 0.1 s: {address}"),
            Clients().client_for(address, ClientOptions(timeout_s=60.0), is_first_contact=True),
        ):
            pass


def test_no_broker_is_told_within_the_time_that_was_given():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*place.getsockname())
        with (
            pytest.raises(TimedOutError, match=f"given up after 0.2 s: {address}"),
            Clients().client_for(address, ClientOptions(timeout_s=0.2)),
        ):
            pass
