"""The table of handlers: each takes the requests of the class under which it stands."""

from __future__ import annotations

import inspect

import pytest

from ottla.broker.handlers import HANDLERS, fetch, produce
from ottla.broker.serving import by_key, serve
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.versions import API_TABLE


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: API_TABLE[key].name)
def test_a_handler_stands_under_the_class_of_its_requests(key: int) -> None:
    """The type checker sees the same; this holds where it is not asked."""
    served = HANDLERS[key]
    _, request, _ = inspect.signature(served.handle).parameters.values()
    assert served.api is API_TABLE[key]
    assert request.annotation == served.api.request.__name__


# What changes something: it is carried out to its end, whether or not somebody still waits for the answer.
CHANGING = {
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "AlterUserScramCredentials",
    "Produce",
    "OffsetCommit",
    "Heartbeat",
    "LeaveGroup",
    "SaslHandshake",
    "SaslAuthenticate",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "CreateAcls",
    "DeleteAcls",
    "AlterClientQuotas",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "CreatePartitions",
    "DeleteGroups",
    "ElectLeaders",
    "OffsetDelete",
    "ConsumerGroupHeartbeat",
}


def test_whatever_only_reads_or_waits_ends_with_its_peer() -> None:
    assert {served.api.name for served in HANDLERS.values() if not served.ends_with_peer} == CHANGING


def test_an_api_is_served_by_one_handler() -> None:
    with pytest.raises(AssertionError, match="one handler"):
        by_key(serve(FetchRequest, fetch.handle), serve(FetchRequest, fetch.handle))


def test_what_is_no_request_is_served_by_nobody() -> None:
    with pytest.raises(AssertionError, match="FetchResponse is not what the API table has"):
        serve(FetchResponse, fetch.handle)  # type: ignore[arg-type]


def test_a_produce_is_decoded_at_once_whatever_its_size() -> None:
    assert [key for key, served in HANDLERS.items() if served.is_decoded_at_once] == [
        serve(ProduceRequest, produce.handle, keep=produce.keep_records).api.key
    ]
