"""Members of a private network reach each other, unless they are cut off; nothing is left of it afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ottla.local_cluster.process import ServerProcess
from ottla.testing import private_network
from ottla.testing.private_network import NAMED, PREFIX, PrivateNetwork, why_not
from ottla.testing.waiting import wait_until

NOT_HERE = why_not()
pytestmark = pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
PORT = 4000


def test_datagrams_are_lost_between_members_that_are_cut_off_and_between_nobody_else(network, mailbox) -> None:
    a, b, c = (mailbox(name) for name in "abc")
    network.cut("a", "b")
    for sender, receiver in ((a, b), (b, a), (a, c), (c, b)):
        sender.send(receiver, "first")
    network.heal("a", "b")
    for sender, receiver in ((a, b), (b, a)):
        sender.send(receiver, "second")
    assert a.received(1) == [("b", "second")]
    assert sorted(b.received(2)) == [("a", "second"), ("c", "first")]
    assert c.received(1) == [("a", "first")]


def test_one_direction_is_cut_and_the_other_is_not(network, mailbox) -> None:
    a, b = mailbox("a"), mailbox("b")
    network.cut_one_way("a", "b")
    a.send(b, "first")
    b.send(a, "first")
    network.heal_one_way("a", "b")
    a.send(b, "second")
    assert b.received(1) == [("a", "second")]
    assert a.received(1) == [("b", "first")]


def test_what_was_cut_twice_is_healed_by_the_second_time(network, mailbox) -> None:
    a, b = mailbox("a"), mailbox("b")
    network.cut("a", "b")
    network.cut_one_way("a", "b")
    network.heal("a", "b")
    a.send(b, "first")
    network.heal_one_way("a", "b")
    a.send(b, "second")
    assert b.received(1) == [("a", "second")]


def test_threads_and_programs_of_a_member_are_in_its_namespace_and_nobody_else_is(network, tmp_path) -> None:
    outside = os.readlink(private_network.OF_THIS_THREAD)
    found: list[str] = []
    with network.entered("a"):
        thread = threading.Thread(target=lambda: found.append(os.readlink(private_network.OF_THIS_THREAD)))
        thread.start()
        thread.join()
    process = network.process("a", ServerProcess("readlink", tmp_path / "log"))
    process.launch(["readlink", "/proc/self/ns/net"])
    wait_until(lambda: not process.is_alive())
    assert process.output().split() == found != [outside]
    assert os.readlink(private_network.OF_THIS_THREAD) == outside


def test_nothing_is_left_after_a_failure() -> None:
    network = PrivateNetwork("x")
    with pytest.raises(ZeroDivisionError), network, network.entered("x"):
        print(len(namespaces()) / 0)
    assert namespaces() == []


def test_what_a_run_that_was_killed_has_left_is_removed_by_the_next_one() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = f"{PREFIX}-{ended.pid}-1-a"
    subprocess.run(["ip", "netns", "add", left], check=True)
    with PrivateNetwork("a"):
        assert not (NAMED / left).exists()


class Mailbox:
    """A member's socket for datagrams, which are lost for good where they are lost."""

    def __init__(self, network: PrivateNetwork, name: str) -> None:
        self._names = {network.address(each): each for each in "abc"}
        with network.entered(name):
            self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._address = (network.address(name), PORT)
        self._socket.bind(self._address)
        self._socket.settimeout(60)

    def close(self) -> None:
        self._socket.close()

    def send(self, other: Mailbox, text: str) -> None:
        self._socket.sendto(text.encode(), other._address)

    def received(self, count: int) -> list[tuple[str, str]]:
        pairs = [self._socket.recvfrom(100) for _ in range(count)]
        return [(self._names[host], data.decode()) for data, (host, _) in pairs]


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    with PrivateNetwork("a", "b", "c") as made:
        yield made


@pytest.fixture
def mailbox(network: PrivateNetwork) -> Iterator[Callable[[str], Mailbox]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(closing(Mailbox(network, name)))


def namespaces() -> list[Path]:
    """Those of this process."""
    return [*NAMED.glob(f"{PREFIX}-{os.getpid()}-*")]
