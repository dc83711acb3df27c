"""The main job: a broker, a shop's orders and clicks, and a pipeline on Spark that is killed on the way; all counted.

    python examples/demo.py [MINUTES]

The pipeline is examples/pipeline.py as it stands, in a process of its own: it decodes events, puts what cannot be
decoded into a topic of dead letters, writes a Delta table and a topic exactly once, and shows its lag as consumer
groups. What goes in is half an hour of a shop's life, told fast: events in their order, some late, some too late, some
broken. In the middle of the day the pipeline is killed with SIGKILL, and another one goes on later. What must come out
is counted while it goes in. The events come from confluent-kafka, which also reads the results and the lag, and knows
nothing of Ottla. Everything happens in a temporary directory; a chart of the revenue and Spark's log stay in out/demo.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pipeline
from chart import draw
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from shop import CAMPAIGNS, COUNTRIES, OPENING, TICK_S, TOO_LATE_COUNT, Event, Shop
from steps import check, step

from ottla.testing.broker import Broker

SILENT = logging.getLogger("client")  # what the client logs about a broker that ends is expected
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
MINUTES = 30  # of the shop's time
TICK_PAUSE_S = 0.1  # of ours; a tick is sent and acknowledged before the next begins
SHOW_S = 2.5
PARTITIONS = 2
WAIT_S = 300  # without anything new, which only a failure reaches
ASK_S = 10  # for one answer
INPUTS = {"revenue": ("orders",), "purchases": ("orders", "clicks"), "dead-letters": ("orders", "clicks")}
CHART = os.path.join("out", "demo", "revenue.svg")
SPARK_LOG = os.path.join("out", "demo", "spark.log")


# -- the pipeline as others see it -------------------------------------------------------------------------------------


class Driver:
    """The process of the pipeline, which comes and goes."""

    def __init__(self, servers: str, home: str) -> None:
        self._command = [sys.executable, pipeline.__file__, servers, home]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        os.makedirs(os.path.dirname(SPARK_LOG), exist_ok=True)
        with open(SPARK_LOG, "ab") as log:
            # A session of its own: Java and the Python workers are killed with it.
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> str:
        """The driver and everything that it has started, at once."""
        assert self._process is not None, "start it first"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return "the pipeline is killed, with whatever it had begun"

    def bring_back(self) -> str:
        self.start()
        return "another one starts, from the checkpoints"

    def finish(self) -> None:
        """Lets it do what there is to do."""
        assert self._process is not None, "start it first"
        self._process.terminate()
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            code = None
        how = f"within {WAIT_S} s" if code is None else f"with exit code 0 and not {code}"
        check(code == 0, f"the pipeline ends {how} (the end of {SPARK_LOG} says why not)")

    def close(self) -> None:
        if self.is_running:
            self.kill()


class Lags:
    """How far each query is behind, as any Kafka tool sees it: its committed offsets beside the ends of its topics."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._consumers = {query: self._consumer(query) for query in pipeline.QUERIES}

    def _consumer(self, query: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._servers, "group.id": f"shop-{query}"}, logger=SILENT)

    def now(self) -> dict[str, int | None]:
        """None: nobody can say now, because a partition gets another leader."""
        return {query: self._of(query) for query in self._consumers}

    def _of(self, query: str) -> int | None:
        consumer = self._consumers[query]
        places = [TopicPartition(topic, number) for topic in INPUTS[query] for number in range(PARTITIONS)]
        try:
            ends = [consumer.get_watermark_offsets(place, ASK_S)[1] for place in places]
            committed = consumer.committed(places, ASK_S)
        except KafkaException:
            consumer.close()
            self._consumers[query] = self._consumer(query)  # which looks for leaders from the beginning
            return None
        return sum(end - max(place.offset, 0) for end, place in zip(ends, committed, strict=True))

    def wait_until_none(self, driver: Driver) -> None:
        """However long that takes: a machine that does much else starts three queries in minutes."""
        seen, deadline = {}, 0.0
        while set((lags := self.now()).values()) != {0}:
            check(driver.is_running, f"the pipeline runs (the end of {SPARK_LOG} says why not)")
            if lags != seen:
                seen, deadline = lags, time.monotonic() + WAIT_S
            check(time.monotonic() < deadline, f"the pipeline catches up; for {WAIT_S} s it has been behind by {lags}")
            time.sleep(0.1)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()


def shown(lags: Mapping[str, int | None]) -> str:
    return "   ".join(f"{name} {'?' if count is None else f'{count:,}':>6}" for name, count in lags.items())


# -- the demo ----------------------------------------------------------------------------------------------------------


Happening = Callable[[Driver], str]  # says what it did


@dataclass(frozen=True)
class Day:
    """How long the shop is open, where its events go, and what happens at which share of the day."""

    minutes: int
    servers: str
    replicas: int = 1
    happenings: dict[float, Happening] = field(default_factory=dict)


def run(day: Day, home: str) -> None:
    with step("make topics") as notes:
        names = ("orders", "clicks", "purchases", "dead-letters")
        topics = [NewTopic(name, PARTITIONS, day.replicas) for name in names]
        admin = AdminClient({"bootstrap.servers": day.servers}, logger=SILENT)
        for future in admin.create_topics(topics).values():
            future.result()
        notes.append(f"{len(topics)} of {PARTITIONS} partitions" + (f", {day.replicas} replicas" * (day.replicas > 1)))
    shop = Shop(random.Random(20250301))
    with running(day.servers, home) as (driver, lags):
        feed(shop, day, driver, lags)
        with step("let the pipeline end"):
            driver.finish()
        with step("look at its consumer groups") as notes:
            notes.append(check(set(lags.now().values()) == {0}, "no lag in any of them"))
    verify(shop, day.servers, home)


@contextmanager
def running(servers: str, home: str) -> Iterator[tuple[Driver, Lags]]:
    driver, lags = Driver(servers, home), Lags(servers)
    try:
        yield driver, lags
    finally:
        driver.close()
        lags.close()


def feed(shop: Shop, day: Day, driver: Driver, lags: Lags) -> None:
    """Sends everything, and returns when the pipeline has seen all of it."""
    producer = Producer({"bootstrap.servers": day.servers, "linger.ms": 5, "enable.idempotence": True}, logger=SILENT)
    with step("start the pipeline") as notes:
        send(producer, shop.tick(OPENING))  # Spark compiles its queries now
        driver.start()
        lags.wait_until_none(driver)
        notes.append(f"three queries on Spark; what they say is in {SPARK_LOG}")
    keep_open(shop, day, producer, driver, lags)
    with step("let the pipeline catch up") as notes:
        lags.wait_until_none(driver)
        notes.append("no lag")
    with step("move time on, to settle the rest"):
        # Twice: what is too late for a batch was decided by the one before it.
        for seconds in (0, 10):
            send(producer, shop.closing(OPENING + timedelta(minutes=day.minutes, hours=1, seconds=seconds)))
            lags.wait_until_none(driver)
    with step("send orders that are too late") as notes:
        notes.append(f"{send(producer, shop.too_late())} of the first minute")
        lags.wait_until_none(driver)


def keep_open(shop: Shop, day: Day, producer: Producer, driver: Driver, lags: Lags) -> None:
    print("\n  the shop is open; the lag of the pipeline is that of its consumer groups")
    started = shown_at = time.perf_counter()
    ticks = day.minutes * 60 // TICK_S
    happenings = {int(ticks * share): happening for share, happening in day.happenings.items()}
    for number in range(1, ticks):
        clock = OPENING + timedelta(seconds=number * TICK_S)
        if number in happenings:
            print(f"    {clock:%H:%M:%S}  {happenings[number](driver)}", flush=True)
        send(producer, shop.tick(clock))
        if time.perf_counter() - shown_at > SHOW_S or number == ticks - 1 or number + 1 in happenings:
            shown_at = time.perf_counter()
            clock += timedelta(seconds=TICK_S)
            print(f"    {clock:%H:%M:%S}  {shop.event_count:>7,} events   lag: {shown(lags.now())}", flush=True)
        time.sleep(TICK_PAUSE_S)
    print(f"  the shop closes: {shop.event_count:,} events in {time.perf_counter() - started:.1f} s\n")


def send(producer: Producer, events: Iterator[Event]) -> int:
    """Sends events and waits for all of them, so that no partition runs ahead of another."""
    count = 0
    for topic, key, value in events:
        producer.produce(topic, value, key)
        count += 1
    check(producer.flush(WAIT_S) == 0, "every event is acknowledged")
    return count


# -- what came out -----------------------------------------------------------------------------------------------------


def read_topic(servers: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records of a topic."""
    settings = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "demo", **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Message] = []
    ends = 0
    deadline = time.monotonic() + WAIT_S
    while ends < PARTITIONS:
        check(time.monotonic() < deadline, f"{topic} can be read within {WAIT_S} s")
        for message in consumer.consume(10_000, 0.2):  # it waits for that many
            error = message.error()
            if error is None:
                found.append(message)
                continue
            check(error.code() == KafkaError._PARTITION_EOF, f"{topic} can be read: {error}")
            ends += 1
    consumer.close()
    return found


def verify(shop: Shop, servers: str, home: str) -> None:
    with step("count the Delta table of revenue") as notes:
        delta = DeltaTable(f"{home}/revenue")
        rows = delta.to_pyarrow_table().to_pylist()
        table = Counter({(row["minute"], row["country"]): (row["orders"], row["cents"]) for row in rows})
        expected = {cell: (count, shop.cents[cell]) for cell, count in shop.orders.items()}
        is_right = len(rows) == len(table) and dict(table) == expected
        notes.append(check(is_right, f"{len(rows)} rows of version {delta.version()}, each count and each cent right"))
        notes.append("none of the orders that came too late")
    with step("count the topic purchases") as notes:
        purchases = [json.loads(message.value()) for message in read_topic(servers, "purchases")]
        found = Counter((row["order_id"], row["click_id"]) for row in purchases)
        notes.append(
            check(found == shop.purchases(), f"{len(purchases):,} pairs of order and click, each exactly once")
        )
        hidden = len(read_topic(servers, "purchases", "read_uncommitted")) - len(purchases)
        notes.append(f"{hidden:,} more, which the killed one had begun, are aborted" if hidden else "none was aborted")
    with step("count the topic dead-letters") as notes:
        letters = read_topic(servers, "dead-letters")
        is_right = Counter(letter.value() for letter in letters) == Counter(shop.broken)
        notes.append(check(is_right, f"{len(letters)} broken events, as they came, each exactly once"))
        reasons = Counter(dict(letter.headers() or [])["ottla.error"].decode().split(" {")[0] for letter in letters)
        has_reasons = sum(reasons.values()) == len(letters)
        notes.append(check(has_reasons, "each with the reason"))
    with step("draw the revenue") as notes:
        draw(shop, CHART)
        notes.append(CHART)
    show(shop, purchases)


def show(shop: Shop, purchases: list[dict[str, str]]) -> None:
    print("\n    country    orders      revenue   by campaign of the click before")
    for country in COUNTRIES:
        orders = sum(count for (_, where), count in shop.orders.items() if where == country)
        cents = sum(count for (_, where), count in shop.cents.items() if where == country)
        campaigns = Counter(row["campaign"] for row in purchases if row["country"] == country)
        shares = "  ".join(f"{name} {campaigns[name]:>4}" for name in CAMPAIGNS)
        print(f"    {country:<7} {orders:>9,} {cents / 100:>12,.2f}   {shares}")
    print(
        f"\n  {shop.sent['clicks']:,} clicks and {shop.sent['orders']:,} orders, {shop.sent['late']:,} of them late, "
        f"{len(shop.broken)} broken, {TOO_LATE_COUNT} too late: all accounted for."
    )


def main() -> None:
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else MINUTES
    print(
        f"Ottla: {minutes} minutes of a shop, from topics through Spark into a Delta table and topics, exactly once\n"
    )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as home:
        with step("start a broker") as notes:
            settings = {"transaction.two.phase.commit.enable": "true"}
            broker = Broker(settings, in_process=False, directory=os.path.join(home, "broker")).start()
            notes.append(broker.bootstrap_servers)
        try:
            happenings: dict[float, Happening] = {0.4: Driver.kill, 0.55: Driver.bring_back}
            run(Day(minutes, broker.bootstrap_servers, happenings=happenings), home)
        finally:
            broker.stop()
    print(f"\nDone in {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()
