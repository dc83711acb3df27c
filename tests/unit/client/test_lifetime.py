"""Clients after close and after a fork; what importing the package costs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from ottla.client.errors import ClosedError, ForkedError
from ottla.client.lifetime import Lifetime
from ottla.client.values import CREATE_TIME, ConsumerRecord, ProducerRecord, RecordMetadata


def test_a_closed_client_refuses_and_may_be_closed_again():
    lifetime = Lifetime("producer")
    lifetime.check()
    assert lifetime.close()
    assert not lifetime.close()
    with pytest.raises(ClosedError, match="the producer is closed"):
        lifetime.check()


def test_a_child_cannot_use_the_clients_of_its_parent():
    lifetime = Lifetime("producer")
    child = os.fork()
    if not child:
        refused = isinstance(lifetime.refusal, ForkedError) and "after the fork" in str(lifetime.refusal)
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lifetime.check()


def test_importing_the_package_imports_no_client():
    code = "import sys, ottla; print([n for n in sys.modules if n.startswith(('ottla.', 'asyncio'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    "value",
    [
        ProducerRecord("orders", b"value", headers=(("a", b"1"),)),
        ConsumerRecord("orders", 0, 7, 1000, CREATE_TIME, None, b"value"),
        RecordMetadata("orders", 0, 7, 1000),
    ],
)
def test_records_are_values(value):
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(AttributeError):
        value.topic = "other"


def test_a_record_has_its_time_as_a_datetime():
    assert ConsumerRecord("orders", 0, 7, 1500, CREATE_TIME, None, None).time.isoformat() == (
        "1970-01-01T00:00:01.500000+00:00"
    )
