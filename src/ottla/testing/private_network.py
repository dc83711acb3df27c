"""A network of this machine's own: every member in a network namespace, and between them a router that drops packets.

    with PrivateNetwork("broker-1", "broker-2", "clients") as network:
        broker.process = network.process("broker-1", broker.process)    # listens at network.address("broker-1")
        with network.entered("clients"):                            # this thread, and whatever it starts
            network.cut("broker-1", "broker-2")                     # neither gets what the other sends, and no error
            network.cut_one_way("broker-2", "clients")
            network.heal("broker-1", "broker-2")

The packets are dropped by rules of the router (`ip rule add from A to B blackhole`), where a real network loses them: a
blackhole in a member's own namespace would let its connects fail at once. Nothing of it can be reached from outside or
reaches out: addresses, routes and rules exist in these namespaces only. It needs iproute2 and the rights of root;
`why_not` says what is missing. A run that was killed leaves namespaces, which the next one removes.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.local_cluster.process import ServerProcess
from ottla.testing.waiting import wait_until

PREFIX: Final = "ottla-net"
ROUTER: Final = "router"
NAMED: Final = Path("/run/netns")  # where `ip netns` keeps its namespaces
OF_THIS_THREAD: Final = Path("/proc/thread-self/ns/net")
CLONE_NEWNET: Final = 0x40000000
MEMBERS_MAX: Final = 250
PREFERENCE: Final = "10"  # of the rules: before the routes

_networks = count(1)


class NetworkNotAllowedError(Exception):
    """This machine, or whoever runs the test, may not make namespaces; the message says what failed."""


class PrivateNetwork:
    """Members by name. They exist from `start` (or the beginning of a `with`) to `stop`."""

    def __init__(self, *members: str) -> None:
        assert len(members) <= MEMBERS_MAX, "each has a network of four addresses"
        self._numbers = {name: number for number, name in enumerate(members, 1)}
        self._prefix = f"{PREFIX}-{os.getpid()}-{next(_networks)}"
        self._cuts: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        try:
            self._make()
            for name in (ROUTER, *self._numbers):
                wait_until(partial(self._is_up, name))
        except BaseException:
            self.stop()
            raise
        return self

    def _make(self) -> None:
        remove_what_was_left()
        self._add_namespace(ROUTER)
        self._ip_netns_exec(ROUTER, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for name, number in self._numbers.items():
            self._connect(name, number)

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", self._namespace(name))
        _ip("-n", self._namespace(name), "link", "set", "lo", "up")

    def _connect(self, name: str, number: int) -> None:
        self._add_namespace(name)
        router, member, port = self._namespace(ROUTER), self._namespace(name), f"port{number}"
        _ip("-n", router, "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", member)
        _ip("-n", router, "address", "add", f"10.83.{number}.1/30", "dev", port)
        _ip("-n", router, "link", "set", port, "up")
        _ip("-n", member, "address", "add", f"{self.address(name)}/30", "dev", "eth0")
        _ip("-n", member, "link", "set", "eth0", "up")
        _ip("-n", member, "route", "add", "default", "via", f"10.83.{number}.1")

    def _is_up(self, name: str) -> bool:
        """Whether all its links carry packets: the kernel takes up to a second, and what is sent before is lost."""
        links = _ip("-n", self._namespace(name), "-oneline", "link", "show", "type", "veth").splitlines()
        return all(" state UP " in link for link in links)

    def stop(self) -> None:
        """Processes in the namespaces have ended by now, or keep nothing but an interface without a peer."""
        for name in (*self._numbers, ROUTER):
            if (NAMED / self._namespace(name)).exists():
                _ip("netns", "delete", self._namespace(name))
        self._cuts.clear()

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _ip_netns_exec(self, name: str, *command: str) -> None:
        _run(self.command(name, command))

    # -- members -------------------------------------------------------------------------------------------------------

    def address(self, name: str) -> str:
        return f"10.83.{self._numbers[name]}.2"

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """What runs a command as that member, in place of itself: the process has the same number."""
        return ["ip", "netns", "exec", self._namespace(name), *command]

    def process(self, name: str, process: ServerProcess) -> ServerProcess:
        """One in place of `process`, which has not been launched: it runs as that member."""
        return _ProcessOfMember(self, name, process)

    @contextmanager
    def entered(self, name: str) -> Iterator[None]:
        """This thread is that member for a while; so are threads and processes that it starts, to their end."""
        before = os.open(OF_THIS_THREAD, os.O_RDONLY)
        try:
            inside = os.open(NAMED / self._namespace(name), os.O_RDONLY)
            try:
                _enter(inside)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    # -- what networks do ----------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between the two, until it has been healed as often as it was cut."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, sender: str, receiver: str) -> None:
        """What one sends the other never gets; the other direction is as it was."""
        if not self._cuts[sender, receiver]:
            self._rule("add", sender, receiver)
        self._cuts[sender, receiver] += 1

    def heal(self, one: str, other: str) -> None:
        """What was lost on its way is sent again, by TCP or by its sender."""
        self.heal_one_way(one, other)
        self.heal_one_way(other, one)

    def heal_one_way(self, sender: str, receiver: str) -> None:
        assert self._cuts[sender, receiver], f"{receiver} gets what {sender} sends"
        self._cuts[sender, receiver] -= 1
        if not self._cuts[sender, receiver]:
            self._rule("delete", sender, receiver)

    def _rule(self, action: str, sender: str, receiver: str) -> None:
        pair = ("from", self.address(sender), "to", self.address(receiver))
        _ip("-n", self._namespace(ROUTER), "rule", action, *pair, "priority", PREFERENCE, "blackhole")


class _ProcessOfMember(ServerProcess):
    """A program that runs as a member of a network."""

    def __init__(self, network: PrivateNetwork, member: str, process: ServerProcess) -> None:
        super().__init__(process.name, process.log)
        self._network = network
        self._member = member

    def launch(self, command: Sequence[str], directory: Path | None = None) -> None:
        super().launch(self._network.command(self._member, command), directory)


def why_not() -> str:
    """Why there can be no such network here; nothing where there can."""
    if shutil.which("ip") is None:
        return "network namespaces are made by ip, of the package iproute2, which is not installed here"
    network = PrivateNetwork("probe")
    try:
        network._make()
        with network.entered("probe"):
            return ""
    except (NetworkNotAllowedError, OSError) as error:
        return f"network namespaces are not allowed here: {error}"
    finally:
        network.stop()


def remove_what_was_left() -> None:
    """Removes the networks of processes that have ended without doing so."""
    for left in NAMED.glob(f"{PREFIX}-*"):
        pid = left.name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            subprocess.run(["ip", "netns", "delete", left.name], check=False, capture_output=True)


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(command: list[str]) -> str:
    """What it prints."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NetworkNotAllowedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
