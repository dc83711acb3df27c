"""Connections: limits, bad frames, slow peers, and that none of it is anybody else's business."""

from __future__ import annotations

import logging
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.testing.broker import Broker
from ottla.testing.raw_client import ConnectionEnded, RawClient, wait_until_read
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce
from ottla.testing.waiting import wait_until

NewTopic = Callable[..., tuple[str, UUID]]
Connect = Callable[[], RawClient]


def is_served(client: RawClient) -> bool:
    try:
        return bool(client.ask(metadata(), 12).brokers)
    except ConnectionEnded:
        return False


def connection_count(broker: Broker) -> int:
    async def count() -> int:
        return len(broker.running.server.connections)

    return broker.call(count())


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "ottla.net.connection")


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_may_arrive_in_any_two_pieces(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for cut in range(1, len(client.encoded(produce(topic, one_batch(b"v")), 9)[1])):
        sent, frame = client.encoded(produce(topic, one_batch(b"v")), 9)
        client.socket.sendall(frame[:cut])
        time.sleep(0.0005)
        client.socket.sendall(frame[cut:])
        client._in_flight.append(sent)
        answer, _ = client.receive()
        assert answer.responses[0].partition_responses[0].base_offset == cut - 1


def test_a_frame_may_arrive_byte_by_byte(client: RawClient) -> None:
    sent, frame = client.encoded(metadata(), 12)
    for position in range(len(frame)):
        client.socket.sendall(frame[position : position + 1])
    client._in_flight.append(sent)
    assert client.receive()[0].brokers


def test_a_connection_cut_at_any_byte_costs_nothing(broker: Broker, client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    _, frame = client.encoded(produce(topic, one_batch(b"v")), 9)
    for cut in range(len(frame)):
        with RawClient(broker.bootstrap_servers) as victim:
            victim.socket.sendall(frame[:cut])
    assert client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset == 0
    wait_until(lambda: connection_count(broker) == 1)


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_a_length_that_cannot_be_closes_the_connection_at_once(size: int, client: RawClient, connect: Connect) -> None:
    client.socket.sendall(struct.pack(">i", size))
    assert client.is_ended()
    assert is_served(connect())


def test_a_frame_without_a_request_closes_the_connection(connect: Connect) -> None:
    for size in range(8):
        client = connect()
        client.socket.sendall(struct.pack(">i", size) + bytes(size))
        assert client.is_ended()


def test_random_bytes_close_the_connection_or_wait_for_more_and_others_go_on(broker: Broker, client: RawClient) -> None:
    rng = random.Random(7)
    for _ in range(300):
        with RawClient(broker.bootstrap_servers) as rude:
            junk = rng.randbytes(rng.randint(1, 300))
            framed = struct.pack(">i", len(junk)) + junk if rng.random() < 0.7 else junk
            rude.socket.sendall(framed)
    assert is_served(client)
    wait_until(lambda: connection_count(broker) == 1)


def test_a_damaged_request_is_a_closed_connection_or_an_answer(
    broker: Broker, client: RawClient, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Every byte of some requests flipped; whatever a flip makes of it, it is not our fault."""
    topic, _ = new_topic()
    requests = [
        (produce(topic, one_batch(b"v")), 9),
        (fetch(topic), 12),
        (list_offsets(topic, -1), 7),
        (metadata(topic), 12),
        (create_topic(topic), 7),
        (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4),
    ]
    for request, version in requests:
        for position in range(8, len(client.encoded(request, version)[1])):
            with RawClient(broker.bootstrap_servers) as rude:
                _, frame = rude.encoded(request, version)
                damaged = bytearray(frame)
                damaged[position] ^= 0x55
                rude.socket.sendall(damaged)
                rude.socket.shutdown(socket.SHUT_WR)
                while rude.socket.recv(65536):
                    pass
    assert is_served(client)
    assert not [record for record in caplog.records if record.exc_info], "no damage may look like our own failure"


def test_memory_grows_with_what_came_not_with_what_was_announced(broker: Broker, client: RawClient) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    greedy = [RawClient(broker.bootstrap_servers) for _ in range(100)]
    for one in greedy:
        one.socket.sendall(struct.pack(">i", 100_000_000) + bytes(1000))
    assert is_served(client)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for one in greedy:
        one.close()
    assert grown_kb < 100_000, "a hundred frames of 100 MB each were announced, 100 kB came"


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(request.param) as broker:
        yield broker


@pytest.mark.parametrize("limited", [{"max.connections": "3"}], indirect=True)
def test_connections_over_the_limit_wait_until_there_is_room(limited: Broker) -> None:
    clients = [RawClient(limited.bootstrap_servers) for _ in range(3)]
    assert all(map(is_served, clients))
    with RawClient(limited.bootstrap_servers) as waiting:
        waiting.send(metadata(), 12)
        assert all(map(is_served, clients)), "the others are served meanwhile"
        assert connection_count(limited) == 3
        clients.pop().close()
        answer, _ = waiting.receive()
        assert answer.brokers
    for client in clients:
        client.close()


@pytest.mark.parametrize("limited", [{"max.connections.per.ip": "3"}], indirect=True)
def test_connections_over_the_limit_are_closed_and_there_is_room_again_later(limited: Broker) -> None:
    clients = [RawClient(limited.bootstrap_servers) for _ in range(3)]
    assert all(map(is_served, clients))
    with RawClient(limited.bootstrap_servers) as refused:
        assert refused.is_ended()
    clients.pop().close()
    wait_until(lambda: connection_count(limited) == 2)
    clients.append(RawClient(limited.bootstrap_servers))
    assert all(map(is_served, clients))
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "limited", [{"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2"}], indirect=True
)
def test_an_address_may_have_a_limit_of_its_own(limited: Broker) -> None:
    with RawClient(limited.bootstrap_servers) as first, RawClient(limited.bootstrap_servers) as second:
        assert is_served(first)
        assert is_served(second)
        with RawClient(limited.bootstrap_servers) as third:
            assert third.is_ended()


@pytest.mark.parametrize("limited", [{"socket.request.max.bytes": "1000"}], indirect=True)
def test_a_request_over_the_limit_closes_the_connection(limited: Broker) -> None:
    with RawClient(limited.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        assert not client.ask(produce("t", one_batch(b"x" * 700)), 9).responses[0].partition_responses[0].error_code
        client.send(produce("t", one_batch(b"x" * 1000)), 9)
        assert client.is_ended()


@pytest.mark.parametrize("limited", [{"connections.max.idle.ms": "2000"}], indirect=True)
def test_a_peer_that_never_reads_its_answers_is_closed_in_the_end(limited: Broker) -> None:
    with RawClient(limited.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        client.ask(produce("t", one_batch(b"x" * 900_000)), 9)
        stuck = RawClient(limited.bootstrap_servers)
        for _ in range(100):
            stuck.send(fetch("t"), 11)
        wait_until(lambda: connection_count(limited) <= 1)
        stuck.close()


# -- slow peers --------------------------------------------------------------------------------------------------------


def test_a_peer_that_does_not_read_is_not_read_from(broker: Broker, new_topic: NewTopic, client: RawClient) -> None:
    """Back-pressure reaches the sender's socket; nobody else waits, and nothing piles up in the broker."""
    topic, _ = new_topic()
    client.ask(produce(topic, one_batch(b"x" * 500_000)), 9)
    with RawClient(broker.bootstrap_servers) as stuck:
        stuck.socket.setblocking(False)
        _, frame = stuck.encoded(fetch(topic), 11)
        accepted = refused_in_a_row = 0
        while refused_in_a_row < 50 and accepted < 64_000_000:
            try:
                accepted += stuck.socket.send(frame * 1000)
                refused_in_a_row = 0
            except BlockingIOError:
                refused_in_a_row += 1
                assert is_served(client)
                time.sleep(0.01)
        assert accepted < 20_000_000, "the sender was held up"


def test_a_slow_reader_gets_everything_in_the_end(broker: Broker, new_topic: NewTopic, client: RawClient) -> None:
    topic, _ = new_topic()
    large = one_batch(b"x" * 900_000)
    for _ in range(5):
        client.ask(produce(topic, large), 9)
    with RawClient(broker.bootstrap_servers) as slow:
        for _ in range(3):
            slow.send(fetch(topic), 11)
        time.sleep(0.3)
        for _ in range(3):
            answer, _ = slow.receive()
            assert len(bytes(answer.responses[0].partitions[0].records)) == 5 * len(large)


def test_slow_writers_do_not_slow_others(broker: Broker, client: RawClient) -> None:
    slow = [RawClient(broker.bootstrap_servers) for _ in range(50)]
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.001):
            for one in slow:
                one.socket.sendall(b"\0")

    _, frame = client.encoded(metadata(), 12)
    for one in slow:
        one.socket.sendall(struct.pack(">i", 50_000_000) + frame[4:])
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for _ in range(100):
            assert is_served(client)
    finally:
        stop.set()
        thread.join()
        for one in slow:
            one.close()


def test_a_peer_that_only_stops_sending_still_gets_its_answers(client: RawClient, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for _ in range(3):
        client.send(fetch(topic, max_wait_ms=50), 11)
    client.socket.shutdown(socket.SHUT_WR)
    for _ in range(3):
        assert client.receive()[0].responses[0].partitions[0].error_code == 0
    assert client.is_ended()


def test_a_peer_that_goes_away_in_the_middle_of_a_poll_is_forgotten(broker: Broker, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    for _ in range(20):
        with RawClient(broker.bootstrap_servers) as gone:
            gone.send(fetch(topic, max_wait_ms=200), 11)
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: connection_count(broker) <= 1)


@pytest.mark.slow
def test_thousands_of_connections_are_served() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(5000, soft - 500)
    if count < 1000:
        pytest.skip(f"only {soft} descriptors are allowed")
    with Broker(in_process=False) as broker, ExitStack() as opened:
        clients = [opened.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(count)]
        for _ in range(2):
            for client in clients:
                client.send(metadata(), 12)
            for client in clients:
                assert client.receive()[0].brokers


def test_no_descriptors_left_is_a_pause_and_not_the_end(tmp_path: object) -> None:
    """Beside this process, with room for few descriptors: those who do not fit wait, and are served later."""
    with Broker(in_process=False) as broker:
        soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (40, hard))
        clients = [RawClient(broker.bootstrap_servers) for _ in range(60)]
        assert is_served(clients[0])
        for client in clients[1:50]:
            client.close()
        assert all(map(is_served, clients[50:]))
        for client in clients[50:]:
            client.close()
        clients[0].close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (soft, hard))


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_a_stop_answers_what_has_arrived_and_then_closes() -> None:
    with Broker() as broker:
        client = RawClient(broker.bootstrap_servers)
        client.ask(create_topic("t"), 7)
        requests: list[tuple[object, int]] = [(fetch("t", max_wait_ms=20_000), 11)]
        requests += [(produce("t", one_batch(b"%d" % number)), 9) for number in range(20)]
        client.send_together(requests)  # so all of it is in hand
        wait_until_read(broker.bootstrap_servers)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        client.receive()
        answers = [client.receive()[0] for _ in range(20)]
        stopping.join()
    assert [one.responses[0].partition_responses[0].base_offset for one in answers] == list(range(20))
    assert client.is_ended()
    client.close()


# -- hanging up --------------------------------------------------------------------------------------------------------


def test_clients_that_hang_up_in_a_long_fetch_are_gone_at_once(broker: Broker, new_topic: NewTopic) -> None:
    topic, _ = new_topic()
    before = connection_count(broker)
    clients = [RawClient(broker.bootstrap_servers) for _ in range(100)]
    for client in clients:
        client.send(fetch(topic, max_wait_ms=60_000), 11)
    partition = broker.running.replicas.find(topic, 0)
    wait_until(lambda: partition.moved.waiter_count == len(clients))
    for number, client in enumerate(clients):
        if number % 2:  # by a reset as well as in order
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_until(lambda: connection_count(broker) == before)
    assert partition.moved.waiter_count == 0
