"""The main job: a broker, a shop's orders and clicks, and a pipeline on Spark, checked to the last row.

    python examples/demo.py [MINUTES]

The pipeline is examples/pipeline.py as it stands. What goes in is half an hour of a shop's life, told fast: events in
their order, some late, some too late, some broken. What must come out is counted while it goes in. The events come from
confluent-kafka, which knows nothing of Ottla. Everything else happens in a temporary directory; a chart of the revenue
stays in out/demo.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pipeline
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from steps import check, step

import ottla.spark
from ottla.testing.broker import Broker

SILENT = logging.getLogger("client")  # what the client logs about a broker that ends is expected
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
MINUTES = 30  # of the shop's time
TICK_S = 10  # of the shop's time; each is sent and acknowledged before the next begins
TICK_PAUSE_S = 0.1  # of ours
CLICKS_PER_TICK, ORDERS_PER_TICK = 400, 100
LATE_SHARE, LATE_MAX_S = 0.05, 90  # within the lateness that the pipeline allows
TOO_LATE_COUNT = 250
BROKEN_SHARE = 0.01
USERS = 3000
COUNTRIES = ("DE", "FR", "IT", "ES", "PL")
CAMPAIGNS = ("spring", "newsletter", "search", "friends")
JOIN_WINDOW = timedelta(minutes=5)
OPENING = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)
PARTITIONS = 2
WAIT_S = 100
CHART = os.path.join("out", "demo", "revenue.svg")
SPARK_LOG = os.path.join("out", "demo", "spark.log")

Purchase = tuple[str, str]  # an order and a click before it


@contextmanager
def errors_into(path: str) -> Iterator[None]:
    """What is started meanwhile writes its complaints into a file, in place of the middle of our lines."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ours = os.dup(2)
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


# -- what goes in ------------------------------------------------------------------------------------------------------


@dataclass
class Shop:
    """Makes events and keeps the books: what the pipeline must find."""

    rng: random.Random
    sent: Counter[str] = field(default_factory=Counter)
    orders: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    cents: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    broken: list[bytes | None] = field(default_factory=list)
    order_times: list[tuple[str, str, datetime]] = field(default_factory=list)
    clicks_of: dict[str, list[tuple[datetime, str]]] = field(default_factory=lambda: defaultdict(list))

    def tick(self, opens: datetime) -> Iterator[tuple[str, str, bytes | None]]:
        """The events of a few seconds: topic, key, value."""
        for topic, count in (("clicks", CLICKS_PER_TICK), ("orders", ORDERS_PER_TICK)):
            for _ in range(count):
                at = opens + timedelta(milliseconds=self.rng.randrange(TICK_S * 1000))
                if self.rng.random() < LATE_SHARE:
                    at -= timedelta(seconds=self.rng.randrange(LATE_MAX_S))
                    self.sent["late"] += 1
                self.sent[topic] += 1
                event = self._click(at) if topic == "clicks" else self._order(at)
                if self.rng.random() < BROKEN_SHARE:
                    yield topic, event["user"], self._break(event)
                else:
                    self._note(topic, event, at)
                    yield topic, event["user"], json.dumps(event).encode()

    def too_late(self) -> Iterator[tuple[str, str, bytes | None]]:
        """Orders of the first minute, when the shop has long been past it."""
        for _ in range(TOO_LATE_COUNT):
            event = self._order(OPENING + timedelta(seconds=self.rng.randrange(60)))
            yield "orders", event["user"], json.dumps(event).encode()

    def closing(self, at: datetime) -> Iterator[tuple[str, str, bytes | None]]:
        """One event of each kind, so much later that everything before it is settled. It is in no result itself."""
        for topic, event in (("clicks", self._click(at)), ("orders", self._order(at - timedelta(seconds=1)))):
            yield topic, event["user"], json.dumps(event).encode()

    def purchases(self) -> Counter[Purchase]:
        """Every order with each click of its user in the five minutes before."""
        return Counter(
            (order, click)
            for order, user, at in self.order_times
            for clicked, click in self.clicks_of[user]
            if at - JOIN_WINDOW <= clicked <= at
        )

    def _order(self, at: datetime) -> dict[str, str | int]:
        return {
            "order_id": f"o-{self.rng.getrandbits(48):012x}",
            "user": f"u-{self.rng.randrange(USERS)}",
            "country": self.rng.choices(COUNTRIES, (5, 4, 3, 2, 1))[0],
            "cents": self.rng.randrange(500, 20_000),
            "at": at.isoformat(),
        }

    def _click(self, at: datetime) -> dict[str, str | int]:
        return {
            "click_id": f"c-{self.rng.getrandbits(48):012x}",
            "user": f"u-{self.rng.randrange(USERS)}",
            "campaign": self.rng.choice(CAMPAIGNS),
            "at": at.isoformat(),
        }

    def _break(self, event: dict[str, str | int]) -> bytes | None:
        whole = json.dumps(event).encode()
        without_user = json.dumps({name: value for name, value in event.items() if name != "user"}).encode()
        value = self.rng.choice([whole[: len(whole) // 2], without_user, b"\xff\xfe not json", b"", None])
        self.broken.append(value)
        return value

    def _note(self, topic: str, event: dict[str, str | int], at: datetime) -> None:
        user = str(event["user"])
        if topic == "clicks":
            self.clicks_of[user].append((at, str(event["click_id"])))
            return
        cell = (at.replace(second=0, microsecond=0), str(event["country"]))
        self.orders[cell] += 1
        self.cents[cell] += int(event["cents"])
        self.order_times.append((str(event["order_id"]), user, at))


def send(producer: Producer, events: Iterator[tuple[str, str, bytes | None]]) -> int:
    """Sends events and waits for all of them, so that no partition runs ahead of another."""
    count = 0
    for topic, key, value in events:
        producer.produce(topic, value, key)
        count += 1
    check(producer.flush(WAIT_S) == 0, "every event is acknowledged")
    return count


# -- what comes out ----------------------------------------------------------------------------------------------------


def read_topic(servers: str, topic: str) -> list[bytes | None]:
    """The values of all records of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "demo", "enable.auto.commit": False})
    values: list[bytes | None] = []
    for number in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)
        consumer.assign([TopicPartition(topic, number, 0)])
        offset = 0
        while offset < end:
            for message in consumer.consume(10_000, 1.0):
                check(message.error() is None, f"{topic} can be read")
                values.append(message.value())
                offset = message.offset() + 1
    consumer.close()
    return values


def progress_of(queries: dict[str, StreamingQuery]) -> str:
    parts = []
    for name, query in queries.items():
        last = query.lastProgress
        parts.append(f"{name} starts" if last is None else f"{name} batch {last['batchId']}")
    return ", ".join(parts)


# -- the demo ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Day:
    """How long the shop is open, where its events go, and what happens in the middle of the day."""

    minutes: int
    servers: str
    replicas: int = 1
    events: dict[float, Callable[[], str]] = field(
        default_factory=dict
    )  # by the share of the day; each says what it did


def run(day: Day, home: str) -> None:
    with step("start Spark") as notes:
        config = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.sql.session.timeZone": "UTC"}
        config["spark.ui.showConsoleProgress"] = "false"
        with errors_into(SPARK_LOG):
            spark = ottla.spark.session("demo", "local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        notes.append(f"version {spark.version}; what it says is in {SPARK_LOG}")
    try:
        run_pipeline(spark, day, home)
    finally:
        spark.stop()


def run_pipeline(spark: SparkSession, day: Day, home: str) -> None:
    servers = day.servers
    with step("make topics") as notes:
        names = ("orders", "clicks", "purchases", "dead-letters")
        topics = [NewTopic(name, PARTITIONS, day.replicas) for name in names]
        admin = AdminClient({"bootstrap.servers": servers}, logger=SILENT)
        for future in admin.create_topics(topics).values():
            future.result()
        notes.append(f"{len(topics)} of {PARTITIONS} partitions" + (f", {day.replicas} replicas" * (day.replicas > 1)))
    with step("start the pipeline") as notes:
        queries = pipeline.start(spark, servers, home)
        notes.append(f"three queries: {', '.join(queries)}")
    shop = Shop(random.Random(20250301))
    feed(shop, day, queries)
    for query in queries.values():
        query.stop()
    verify(spark, shop, servers, home)


def feed(shop: Shop, day: Day, queries: dict[str, StreamingQuery]) -> None:
    """Sends everything, and returns when the pipeline has settled all of it."""
    producer = Producer({"bootstrap.servers": day.servers, "linger.ms": 5, "enable.idempotence": True}, logger=SILENT)
    closes = OPENING + timedelta(minutes=day.minutes)
    with step("send the first events through it") as notes:
        send(producer, shop.tick(OPENING))  # Spark compiles its queries now
        settle(queries)
        notes.append(progress_of(queries))
    print("\n  the shop is open")
    started = shown = time.perf_counter()
    ticks = day.minutes * 60 // TICK_S
    happens = {int(ticks * share): event for share, event in day.events.items()}
    for number in range(1, ticks):
        opens = OPENING + timedelta(seconds=number * TICK_S)
        if number in happens:
            print(f"    {opens:%H:%M:%S}  {happens[number]()}", flush=True)
        send(producer, shop.tick(opens))
        if time.perf_counter() - shown > 3 or number == ticks - 1:
            shown = time.perf_counter()
            clock = OPENING + timedelta(seconds=(number + 1) * TICK_S)
            count = shop.sent["orders"] + shop.sent["clicks"]
            print(f"    {clock:%H:%M:%S}  {count:>7,} events   {progress_of(queries)}", flush=True)
        time.sleep(TICK_PAUSE_S)
    total = shop.sent["orders"] + shop.sent["clicks"]
    print(f"  the shop closes: {total:,} events in {time.perf_counter() - started:.1f} s\n")
    with step("let the pipeline catch up") as notes:
        settle(queries)
        notes.append(progress_of(queries))
    with step("send orders that are too late") as notes:
        notes.append(f"{send(producer, shop.too_late())} of the first minute")
        settle(queries)
    with step("move time on, to settle the rest"):
        send(producer, shop.closing(closes + timedelta(hours=1)))
        settle(queries)


def settle(queries: dict[str, StreamingQuery]) -> None:
    for query in queries.values():
        query.processAllAvailable()


def verify(spark: SparkSession, shop: Shop, servers: str, home: str) -> None:
    with step("count the table of revenue") as notes:
        table = {
            (row.minute.replace(tzinfo=UTC), row.country): (row.orders, row.cents)
            for row in spark.read.parquet(f"{home}/revenue").collect()
        }
        expected = {cell: (count, shop.cents[cell]) for cell, count in shop.orders.items()}
        notes.append(check(table == expected, f"{len(table)} rows, each count and each cent as expected"))
        notes.append("none of the orders that came too late")
    with step("count the topic purchases") as notes:
        purchases = [json.loads(value) for value in read_topic(servers, "purchases") if value is not None]
        found = Counter((row["order_id"], row["click_id"]) for row in purchases)
        notes.append(check(found == shop.purchases(), f"{len(purchases):,} pairs of order and click, each once"))
    with step("count the topic dead-letters") as notes:
        letters = Counter(read_topic(servers, "dead-letters"))
        notes.append(check(letters == Counter(shop.broken), f"{len(shop.broken)} broken events, as they came"))
    with step("draw the revenue") as notes:
        draw(shop)
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


def draw(shop: Shop) -> None:
    """Revenue per minute, stacked by country, as one SVG without any library."""
    width, height, gap = 820, 260, 60
    colours = ("#36c", "#4a8", "#e94", "#c4c", "#888")
    minutes = sorted({minute for minute, _ in shop.cents})
    top = max(sum(shop.cents[minute, country] for country in COUNTRIES) for minute in minutes)
    bar = width / len(minutes)
    shapes = []
    for number, minute in enumerate(minutes):
        y = float(gap + height)
        for country, colour in zip(COUNTRIES, colours, strict=True):
            size = shop.cents[minute, country] * height / top
            y -= size
            shapes.append(
                f"<rect x='{gap + number * bar:.1f}' y='{y:.1f}' width='{bar * 0.8:.1f}' height='{size:.1f}' "
                f"fill='{colour}'/>"
            )
        if number % 5 == 0:
            shapes.append(f"<text x='{gap + number * bar:.1f}' y='{gap + height + 18}'>{minute:%H:%M}</text>")
    for number, (country, colour) in enumerate(zip(COUNTRIES, colours, strict=True)):
        x = gap + width + 15
        shapes.append(f"<rect x='{x}' y='{gap + number * 22}' width='14' height='14' fill='{colour}'/>")
        shapes.append(f"<text x='{x + 20}' y='{gap + number * 22 + 12}'>{country}</text>")
    picture = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width + gap * 2 + 40}' height='{height + gap * 2}' "
        "font-family='sans-serif' font-size='13'><rect width='100%' height='100%' fill='white'/>"
        f"<text x='{gap}' y='34' font-size='15'>revenue per minute, up to {top / 100:,.0f}</text>"
        f"<line x1='{gap}' y1='{gap + height}' x2='{gap + width}' y2='{gap + height}' stroke='#888'/>"
        f"{''.join(shapes)}</svg>"
    )
    with open(CHART, "w", encoding="utf-8") as file:
        file.write(picture)


def main() -> None:
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else MINUTES
    print(f"Ottla: {minutes} minutes of a shop, from topics through Spark into a table and topics\n")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as home:
        with step("start a broker") as notes:
            broker = Broker(in_process=False, directory=os.path.join(home, "broker")).start()
            notes.append(broker.bootstrap_servers)
        try:
            run(Day(minutes, broker.bootstrap_servers), home)
        finally:
            broker.stop()
    print(f"\nDone in {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()
