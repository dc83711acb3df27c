"""Whether a cluster can start where it is: its ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.layout import BrokerPlace, Layout
from ottla.net.ports import free_ports


@pytest.mark.parametrize(
    ("zookeepers", "taken", "words"),
    [
        (1, 0, "which broker 1 needs: end it, or choose other ports with --port"),
        (1, 1, r"which zookeeper 1 needs: end it, or write another one into zookeeper_ports of .*/cluster.json"),
        (1, 2, None),  # a single ZooKeeper has no peers
        (3, 2, "which zookeeper 2 needs"),
        (3, 5, "which zookeeper 2 needs"),
        (3, 9, "which zookeeper 3 needs"),
    ],
)
def test_a_port_that_another_program_has_is_told(tmp_path: Path, zookeepers: int, taken: int, words: str | None):
    ports = free_ports(1 + 3 * zookeepers)
    cluster = LocalCluster(tmp_path, Layout((BrokerPlace(1, ports[0]),), tuple(ports[1:])))
    cluster.check_start(is_supervised=True)
    with socket.create_server(("127.0.0.1", ports[taken])):
        if words is None:
            cluster.check_start(is_supervised=True)
            return
        with pytest.raises(ConfigError, match=f"another program uses port {ports[taken]}, {words}"):
            cluster.check_start(is_supervised=True)


def test_connections_that_have_ended_keep_no_broker_from_its_port(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = server.getsockname()[1]
        accepted, _ = server.accept()
        accepted.close()  # first, so the system remembers the connection at this end
        assert client.recv(1) == b""
    LocalCluster(tmp_path, Layout((BrokerPlace(1, port),))).check_start(is_supervised=True)
