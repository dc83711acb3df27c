"""Clients administer: topics, partitions, configurations, the cluster, and what is refused."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.testing.clients import Sent, StepError

MANY = 1000


@pytest.mark.feature("create a topic")
def test_a_topic_is_created_with_partitions_and_configs(driver, judged, new_name):
    topic = new_name()
    driver.do("create_topic", topic=topic, partitions=3, configs={"retention.ms": "123456789"})
    judged.wait_for_partitions(topic, 3)
    assert judged.config(topic, "retention.ms") == "123456789"


@pytest.mark.feature("describe a topic")
def test_a_topic_is_described_with_its_partitions(driver, make_topic):
    assert driver.do("describe_topic", topic=make_topic(7)) == {"partitions": 7}


@pytest.mark.feature("add partitions")
def test_partitions_are_added_to_a_topic(driver, judged, make_topic):
    topic = make_topic(2)
    driver.do("add_partitions", topic=topic, partitions=5)
    judged.wait_for_partitions(topic, 5)


@pytest.mark.feature("delete a topic")
def test_a_deleted_topic_is_gone(driver, judged, make_topic):
    topic = make_topic(2)
    driver.do("delete_topic", topic=topic)
    judged.wait_for_partitions(topic, 0)


@pytest.mark.feature("1,000 partitions")
def test_a_topic_of_a_thousand_partitions_is_created_written_and_read(client, driver, judged, new_name):
    topic = new_name()
    # kcat starts a process for each partition that it writes to.
    written = range(0, MANY, 50 if client.name == "kcat" else 1)
    if "create a topic" in client.lacks:
        judged.create_topic(topic, MANY)
    else:
        driver.do("create_topic", topic=topic, partitions=MANY, configs={})
        judged.wait_for_partitions(topic, MANY)
    assert driver.do("describe_topic", topic=topic) == {"partitions": MANY}
    driver.produce(topic, [Sent(b"for %d" % partition, partition=partition) for partition in written])
    seen = driver.consume(topic, len(written), partitions=written)
    assert [(record.partition, record.offset, record.value) for record in seen] == [
        (partition, 0, b"for %d" % partition) for partition in written
    ]
    judged.delete_topic(topic)


@pytest.mark.feature("describe the cluster")
def test_the_cluster_is_described_with_the_address_of_its_broker(driver, judged):
    found = driver.do("describe_cluster")
    (broker,) = found["brokers"]
    assert (broker["host"], broker["port"]) == ("127.0.0.1", judged.port)
    assert found["controller"] == broker["id"]
    assert found["cluster_id"] in (None, judged.cluster_id())


@pytest.mark.feature("describe configs")
def test_the_configs_of_a_topic_are_described_set_ones_and_defaults(driver, make_topic):
    found = driver.do("describe_configs", topic=make_topic(configs={"max.message.bytes": "54321"}))
    assert found["max.message.bytes"] == "54321"
    assert found["cleanup.policy"] == "delete"
    assert found["segment.bytes"] == str(1 << 30)


@pytest.mark.feature("alter configs")
def test_configs_of_a_topic_are_altered_and_hold_from_then_on(driver, make_topic, eventually):
    topic = make_topic()
    wanted = {"max.message.bytes": "2000", "cleanup.policy": "compact"}
    driver.do("alter_configs", topic=topic, configs=wanted)
    eventually(lambda: wanted.items() <= driver.do("describe_configs", topic=topic).items())
    with pytest.raises(StepError):
        driver.produce(topic, [Sent(bytes(5000), key=b"key")])


@pytest.mark.feature("error: unknown topic")
def test_an_unknown_topic_is_named_as_such(driver, new_name):
    with pytest.raises(StepError) as refused:
        driver.do("describe_topic", topic=new_name())
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.feature("error: topic exists")
def test_a_topic_is_not_created_twice(driver, make_topic):
    with pytest.raises(StepError) as refused:
        driver.do("create_topic", topic=make_topic(), partitions=1, configs={})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
