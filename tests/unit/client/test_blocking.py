"""The client without an event loop of the caller's."""

from __future__ import annotations

import threading

import pytest

from ottla.client.blocking import Blocking
from ottla.net.client import CannotConnectError


def client_threads() -> set[threading.Thread]:
    """Those of other tests, too: workers of Spark keep their clients."""
    return {thread for thread in threading.enumerate() if thread.name == "ottla-client"}


def test_a_caller_waits_for_coroutines(network, options):
    network.add(1)
    before = client_threads()
    with Blocking("broker:9001", options, network.connector) as client:
        assert client.wait(client.cluster.topic("orders")).name == "orders"
    assert client_threads() <= before


def test_no_broker_is_an_error_and_leaves_no_thread(network, options):
    before = client_threads()
    with pytest.raises(CannotConnectError), Blocking("broker:9001", options, network.connector):
        pass
    assert client_threads() <= before
