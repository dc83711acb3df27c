"""A tour of the broker: topics made, a million records through a real Kafka client, the broker killed and recovered.

    python examples/broker_tour.py [RECORDS]

The client is confluent-kafka (librdkafka), which knows nothing of Ottla. Everything happens on this machine, in a
temporary directory that is gone afterwards; a picture of throughput and latency stays in out/demo.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from steps import check, step

from ottla.testing.broker import Broker

SILENT = logging.getLogger("client")  # the client says a lot while its broker is dead
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
KILLED_AFTER = 0.5  # of the records of the last topic
PICTURE = os.path.join("out", "demo", "broker.svg")


def value_of(number: int) -> bytes:
    return b'{"order": %d, "customer": "c-%06d", "amount": %d, "currency": "EUR"}' % (
        number,
        number % 9973,
        number % 997,
    )


class Deliveries:
    """Counts acknowledged records, and remembers when they were acknowledged and how long that took."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.latencies_ms: list[float] = []
        self.by_second: dict[int, int] = {}
        self.started = time.perf_counter()

    def note(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int.from_bytes(message.key(), "big"))
            latency_s = message.latency()
            if latency_s is not None:
                self.latencies_ms.append(latency_s * 1000)
            second = int((time.perf_counter() - self.started) * 4)
            self.by_second[second] = self.by_second.get(second, 0) + 1


def send(producer: Producer, topic: str, numbers: range, deliveries: Deliveries) -> None:
    for number in numbers:
        while True:
            try:
                producer.produce(topic, value_of(number), number.to_bytes(8, "big"), on_delivery=deliveries.note)
                break
            except BufferError:  # the client's queue is full: let it send
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)


def producer_for(broker: Broker, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
            "message.timeout.ms": 60_000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "queue.buffering.max.messages": 20_000,  # few in flight: latency is the broker's, not the queue's
        },
        logger=SILENT,
    )


def read_all(broker: Broker, topic: str, count: int) -> list[int]:
    """The numbers of all records of a topic, partition by partition in the order of their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "tour",  # asked for by the client; nothing is committed
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[int] = []
    deadline = time.perf_counter() + 60
    while len(found) < count and time.perf_counter() < deadline:
        for message in consumer.consume(10_000, 1.0):
            number = int.from_bytes(message.key(), "big")
            check(message.error() is None and message.value() == value_of(number), f"record {number} is as it was sent")
            found.append(number)
    consumer.close()
    return found


def tour(records: int) -> None:
    with step("start a broker"):
        broker = Broker(in_process=False).start()
    try:
        visit(broker, records)
        with step("stop it") as notes:
            broker.stop()
            notes.append("its data is gone again")
    finally:
        broker.stop()  # also where the tour ends early: a step that fails, or nobody who reads


def visit(broker: Broker, records: int) -> None:
    topics = {codec: f"orders-{codec}" for codec in CODECS}
    with step("make topics") as notes:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers}, logger=SILENT)
        wanted = [NewTopic(name, PARTITIONS, 1) for name in (*topics.values(), "survivors")]
        for future in admin.create_topics(wanted).values():
            future.result()
        notes.append(f"{len(wanted)} topics of {PARTITIONS} partitions at {broker.bootstrap_servers}")
    share = records // (len(CODECS) + 1)
    deliveries = Deliveries()
    for codec, topic in topics.items():
        with step(f"write with {codec}") as notes:
            started = time.perf_counter()
            producer = producer_for(broker, codec)
            send(producer, topic, range(share), deliveries)
            check(producer.flush(60) == 0, "every record is acknowledged")
            notes.append(f"{share / (time.perf_counter() - started):,.0f} records/s acknowledged by all")
        with step("  read back and compare") as notes:
            started = time.perf_counter()
            found = read_all(broker, topic, share)
            notes.append(f"{len(found) / (time.perf_counter() - started):,.0f} records/s")
            notes.append(check(sorted(found) == list(range(share)), "each there once, as it was sent"))
    survive(broker, share)
    with step("draw throughput and latency") as notes:
        draw(deliveries)
        notes.append(PICTURE)
    latencies = sorted(deliveries.latencies_ms)
    middle, high = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"\n  latency as the producer saw it (20 ms of it lingering): p50 {middle:.1f} ms, p99 {high:.1f} ms\n")


def survive(broker: Broker, count: int) -> None:
    """Kills the broker while it is being written to; what was acknowledged must be there, once and in order."""
    deliveries = Deliveries()
    producer = producer_for(broker, "lz4")
    until = int(count * KILLED_AFTER)
    with step("kill it while it is written to") as notes:
        send(producer, "survivors", range(until), deliveries)
        while len(deliveries.acknowledged) < until // 2:
            producer.poll(0.001)
        broker.kill()
        notes.append(f"SIGKILL after {len(deliveries.acknowledged):,} acknowledgements")
    with step("start it again on the same data"):
        broker.restart()
    with step("the producer goes on by itself") as notes:
        send(producer, "survivors", range(until, count), deliveries)
        check(producer.flush(60) == 0, "every record is acknowledged")
        notes.append(f"{len(deliveries.acknowledged):,} acknowledged")
    with step("  read back and compare") as notes:
        found = read_all(broker, "survivors", count)
        notes.append(check(len(found) == len(set(found)), "no record twice"))
        notes.append(check(set(found) == deliveries.acknowledged == set(range(count)), "none lost"))


def draw(deliveries: Deliveries) -> None:
    """Throughput over time and the spread of latency, as one SVG without any library."""
    width, height, gap = 460, 200, 60
    rates = [deliveries.by_second.get(slot, 0) * 4 for slot in range(max(deliveries.by_second) + 1)]
    top = max(rates)
    points = " ".join(
        f"{gap + slot * width / max(1, len(rates) - 1):.1f},{gap + height - rate * height / top:.1f}"
        for slot, rate in enumerate(rates)
    )
    latencies = sorted(deliveries.latencies_ms)
    marks = (50, 75, 90, 95, 99, 99.9)
    values = [latencies[min(len(latencies) - 1, int(len(latencies) * mark / 100))] for mark in marks]
    left = gap * 2 + width + 40
    bars = "".join(
        f"<rect x='{left + number * 60}' y='{gap + height - value * height / values[-1]:.1f}' width='40' "
        f"height='{value * height / values[-1]:.1f}' fill='#4a8'/>"
        f"<text x='{left + 20 + number * 60}' y='{gap + height + 18}' text-anchor='middle'>p{mark:g}</text>"
        f"<text x='{left + 20 + number * 60}' y='{gap + height - value * height / values[-1] - 6:.1f}' "
        f"text-anchor='middle'>{value:.0f}</text>"
        for number, (mark, value) in enumerate(zip(marks, values, strict=True))
    )
    picture = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{left + 400}' height='{height + 2 * gap}' "
        "font-family='sans-serif' font-size='13'><rect width='100%' height='100%' fill='white'/>"
        f"<text x='{gap}' y='30' font-size='15'>records per second (up to {top:,}) over {len(rates) / 4:.0f} s</text>"
        f"<polyline points='{points}' fill='none' stroke='#36c' stroke-width='2'/>"
        f"<line x1='{gap}' y1='{gap + height}' x2='{gap + width}' y2='{gap + height}' stroke='#888'/>"
        f"<text x='{left}' y='30' font-size='15'>milliseconds from send to acknowledgement</text>{bars}</svg>"
    )
    os.makedirs(os.path.dirname(PICTURE), exist_ok=True)
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(picture)


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"Ottla: a broker, {records:,} records, and a client that takes it for Kafka\n")
    started = time.perf_counter()
    tour(records)
    print(f"Done in {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()
