import pytest

from ottla.protocol.schema import Versions
from ottla.protocol.versions import API_TABLE, all_messages, message_class


def test_produce_is_advertised_from_0_so_that_old_librdkafka_keeps_compressing() -> None:
    assert API_TABLE[0].advertised == Versions(0, 13)


def test_versions_that_kafka_4_dropped_are_read_but_not_advertised() -> None:
    fetch = API_TABLE[1]
    assert (fetch.versions, fetch.advertised) == (Versions(0, 18), Versions(4, 18))


def test_an_unstable_version_is_not_advertised() -> None:
    init_producer_id = API_TABLE[22]
    assert (init_producer_id.versions, init_producer_id.advertised) == (Versions(0, 6), Versions(0, 5))


@pytest.mark.parametrize(
    "name", ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition"]
)
def test_what_brokers_say_to_each_other_is_not_advertised(name: str) -> None:
    assert name in {api.name for api in API_TABLE.values()}
    assert name not in {api.name for api in API_TABLE.values() if api.advertised is not None}


def test_requests_and_responses_belong_together() -> None:
    for key, api in API_TABLE.items():
        assert key == api.key
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"


def test_no_two_messages_share_a_name() -> None:
    names = [cls.__name__ for cls in all_messages()]
    assert len(names) == len(set(names))
    assert message_class("FetchRequest") is API_TABLE[1].request


def test_every_class_says_what_it_is_for() -> None:
    for cls in all_messages():
        assert cls.__doc__, cls
        assert "\n" not in cls.__doc__.strip(), cls


def test_ranges_of_versions_read_well() -> None:
    assert (str(Versions(3, 3)), str(Versions(0, 13))) == ("3", "0-13")
    assert list(Versions(1, 3)) == [1, 2, 3]
    assert 3 in Versions(1, 3)
    assert 4 not in Versions(1, 3)
