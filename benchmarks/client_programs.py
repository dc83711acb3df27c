"""The clients that clients.py compares, each in a process of its own that does one job after the other.

    python client_programs.py NAME

reads jobs as lines of JSON and prints what each took: seconds, CPU seconds of this process (all threads) and whatever
else the job measures. Every client is used the way its documentation recommends for throughput: the same linger and
batch size, librdkafka's `consume(n)`, C extensions where there are any. `iterate` takes one record after the other from
the client (confluent-kafka from `consume(n)`, which is faster than its `poll`), `poll` takes many at once where that is
another call: `take`, `getmany`, `poll`.
kafka-python takes a checksum in C from the package `crc32c`; where that is not installed it is lent ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

LINGER_MS = 5
BATCH_BYTES = 1_000_000  # librdkafka's default
FETCH_WAIT_MS = 100
TAKE_RECORDS = 10_000
COLUMN_ROWS = 100_000  # in one call
YIELD_EVERY = 1000  # records that an asyncio program sends before it lets others run
BLOCKED_S = 1.0

Job = Mapping[str, Any]
Found = dict[str, Any]


class Client(Protocol):
    """The jobs. What it opens stays open for the next job of the same kind: connecting is no part of a record."""

    def send(self, job: Job) -> None: ...
    def iterate(self, job: Job) -> None: ...
    def poll(self, job: Job) -> None: ...
    def one_by_one(self, job: Job) -> list[float]: ...
    def idle(self, job: Job) -> None: ...


def values_of(size: int) -> list[bytes]:
    """Half of each value repeats, as in peers.py."""
    half = size // 2
    return [os.urandom(half) + bytes(size - half) for _ in range(64)]


def with_settings(job: Job, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """The recommended settings, or none but those of the client itself."""
    return {} if job.get("as_installed") else dict(tuned)


# -- ours, blocking ----------------------------------------------------------------------------------------------------


class Ottla:
    def __init__(self) -> None:
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def _producer(self, job: Job, **settings: Any) -> Any:
        import ottla

        key = json.dumps(settings)
        if key not in self._producers:
            self._producers[key] = ottla.Producer(bootstrap_servers=job["bootstrap"], acks="all", **settings)
        return self._producers[key]

    def send(self, job: Job) -> None:
        producer = self._producer(job, **with_settings(job, {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}))
        values, topic = values_of(job["value_bytes"]), job["topic"]
        for number in range(job["count"]):
            producer.send(topic, values[number & 63])
        producer.flush()

    def _reading(self, job: Job) -> Any:
        import ottla

        if self._consumer is None:
            self._consumer = ottla.Consumer(
                bootstrap_servers=job["bootstrap"],
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_poll_records=TAKE_RECORDS,
            )
        partitions = [ottla.TopicPartition(job["topic"], index) for index in range(job["partitions"])]
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, 0)
        return self._consumer

    def iterate(self, job: Job) -> None:
        left, size = job["count"], 0
        for record in self._reading(job):
            size += len(record.value)
            left -= 1
            if not left:
                break
        assert size == job["count"] * job["value_bytes"], size

    def poll(self, job: Job) -> None:
        consumer, left, size = self._reading(job), job["count"], 0
        while left > 0:
            records = consumer.take(5.0)
            for record in records:
                size += len(record.value)
            left -= len(records)
        assert size == job["count"] * job["value_bytes"], size

    def send_columns(self, job: Job) -> None:
        producer = self._producer(job, linger_ms=LINGER_MS)
        columns = arrow_values(job)
        futures = [
            producer.send_columns(job["topic"], columns.slice(start, COLUMN_ROWS))
            for start in range(0, job["count"], COLUMN_ROWS)
        ]
        for future in futures:
            future.result()

    def poll_columns(self, job: Job) -> None:
        consumer, left, size = self._reading(job), job["count"], 0
        while left > 0:
            rows = consumer.poll_arrow(5.0, COLUMN_ROWS)
            left -= rows.num_rows
            size += rows.num_rows and value_bytes_of(rows)
        assert size == job["count"] * job["value_bytes"], size

    def one_by_one(self, job: Job) -> list[float]:
        producer, value, took = self._producer(job, linger_ms=0), bytes(job["value_bytes"]), []
        for _ in range(job["count"]):
            started = time.perf_counter()
            producer.send(job["topic"], value).result()
            took.append(time.perf_counter() - started)
        return took

    def idle(self, job: Job) -> None:
        import ottla

        with ottla.Consumer(
            job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="latest"
        ) as consumer:
            wait_until(lambda: consumer.poll(0.1) or consumer.assignment())
            measure_rest(job, consumer.poll)

    def fill_memory(self, job: Job) -> int:
        import ottla
        from ottla.client.errors import BufferExhaustedError

        producer = ottla.Producer(
            bootstrap_servers=job["bootstrap"], buffer_memory=job["bytes_max"], max_block_ms=BLOCKED_S * 1000
        )
        self._stuck = producer  # it is not closed: its broker stands still
        producer.partitions_for(job["topic"])
        job["begin"]()
        job["pause"]()
        return sent_until_full(job, lambda value: producer.send(job["topic"], value), BufferExhaustedError)

    def hold_memory(self, job: Job) -> None:
        import ottla

        with ottla.Consumer(bootstrap_servers=job["bootstrap"], fetch_max_bytes=job["bytes_max"]) as consumer:
            job["begin"]()
            consumer.assign([ottla.TopicPartition(job["topic"], index) for index in range(job["partitions"])])
            consumer.seek_to_beginning()
            wait_until(lambda: consumer.poll(0.1, max_records=1))
            time.sleep(job["seconds"])


# -- ours, on asyncio --------------------------------------------------------------------------------------------------


class OnLoop:
    """A client of asyncio: one loop for all jobs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def send(self, job: Job) -> None:
        self.loop.run_until_complete(self._send(job))

    def iterate(self, job: Job) -> None:
        self.loop.run_until_complete(self._iterate(job))

    def poll(self, job: Job) -> None:
        self.loop.run_until_complete(self._poll(job))

    def one_by_one(self, job: Job) -> list[float]:
        return self.loop.run_until_complete(self._one_by_one(job))

    def idle(self, job: Job) -> None:
        self.loop.run_until_complete(self._idle(job))

    async def _send(self, job: Job) -> None:
        raise NotImplementedError

    async def _iterate(self, job: Job) -> None:
        raise NotImplementedError

    async def _poll(self, job: Job) -> None:
        raise NotImplementedError

    async def _one_by_one(self, job: Job) -> list[float]:
        raise NotImplementedError

    async def _idle(self, job: Job) -> None:
        raise NotImplementedError


class OttlaOnLoop(OnLoop):
    def _producer(self, job: Job, **settings: Any) -> Any:
        from ottla import aio

        key = json.dumps(settings)
        if key not in self._producers:
            self._producers[key] = aio.Producer(bootstrap_servers=job["bootstrap"], acks="all", **settings)
        return self._producers[key]

    async def _send(self, job: Job) -> None:
        producer = self._producer(job, **with_settings(job, {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}))
        values, topic = values_of(job["value_bytes"]), job["topic"]
        for number in range(job["count"]):
            producer.send(topic, values[number & 63])
            if not number % YIELD_EVERY:
                await asyncio.sleep(0)
                await producer.room()
        await producer.flush()

    def _reading(self, job: Job) -> Any:
        from ottla import TopicPartition, aio

        if self._consumer is None:
            self._consumer = aio.Consumer(
                bootstrap_servers=job["bootstrap"],
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_poll_records=TAKE_RECORDS,
            )
        partitions = [TopicPartition(job["topic"], index) for index in range(job["partitions"])]
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, 0)
        return self._consumer

    async def _iterate(self, job: Job) -> None:
        left, size = job["count"], 0
        async with contextlib.aclosing(aiter(self._reading(job))) as records:
            async for record in records:
                size += len(record.value)
                left -= 1
                if not left:
                    break
        assert size == job["count"] * job["value_bytes"], size

    async def _poll(self, job: Job) -> None:
        consumer, left, size = self._reading(job), job["count"], 0
        while left > 0:
            records = await consumer.take(5.0)
            for record in records:
                size += len(record.value)
            left -= len(records)
        assert size == job["count"] * job["value_bytes"], size

    async def _one_by_one(self, job: Job) -> list[float]:
        producer, value, took = self._producer(job, linger_ms=0), bytes(job["value_bytes"]), []
        for _ in range(job["count"]):
            started = time.perf_counter()
            await producer.send(job["topic"], value)
            took.append(time.perf_counter() - started)
        return took

    async def _idle(self, job: Job) -> None:
        from ottla import aio

        async with aio.Consumer(
            job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="latest"
        ) as consumer:
            while not consumer.assignment():
                await consumer.poll(0.1)
            await measure_rest_on_loop(job, consumer.poll)


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


class Confluent:
    def __init__(self) -> None:
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def _producer(self, job: Job, settings: Mapping[str, Any]) -> Any:
        from confluent_kafka import Producer

        key = json.dumps(settings)
        if key not in self._producers:
            # Idempotent, as ours is and Java's is.
            common = {"bootstrap.servers": job["bootstrap"], "acks": "all", "enable.idempotence": True}
            self._producers[key] = Producer({**common, **settings})
        return self._producers[key]

    def _throughput(self, job: Job) -> Any:
        tuned = {
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
        return self._producer(job, with_settings(job, tuned))

    def send(self, job: Job) -> None:
        producer = self._throughput(job)
        values, topic = values_of(job["value_bytes"]), job["topic"]
        for number in range(job["count"]):
            while True:
                try:
                    producer.produce(topic, values[number & 63])
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(120) == 0

    def send_columns(self, job: Job) -> None:
        """Nothing takes a column: `produce_batch` with a list of dicts is the nearest there is."""
        producer, topic = self._throughput(job), job["topic"]
        values = arrow_values(job)
        for start in range(0, job["count"], COLUMN_ROWS):
            rows = values.slice(start, COLUMN_ROWS).to_pylist()
            taken = producer.produce_batch(topic, [{"value": value} for value in rows])
            assert taken == len(rows), "the queue is larger than what is sent"
        assert producer.flush(120) == 0

    def _reading(self, job: Job) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": job["bootstrap"],
                    "group.id": "bench",
                    "enable.auto.commit": False,
                    "fetch.queue.backoff.ms": 5,
                    "queued.max.messages.kbytes": 200_000,
                    "queued.min.messages": 1_000_000,
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                }
            )
        self._consumer.assign([TopicPartition(job["topic"], index, 0) for index in range(job["partitions"])])
        return self._consumer

    def iterate(self, job: Job) -> None:
        consumer, left, size = self._reading(job), job["count"], 0
        while left:
            # Never more than there are: it would wait for them.
            messages = consumer.consume(min(TAKE_RECORDS, left), 5.0)
            for message in messages:
                size += len(message.value())
            left -= len(messages)
        assert size == job["count"] * job["value_bytes"], size
        consumer.unassign()

    poll = iterate

    def poll_columns(self, job: Job) -> None:
        """Its messages as the same columns of Arrow."""
        import pyarrow as pa

        consumer, left, size = self._reading(job), job["count"], 0
        while left:
            messages = consumer.consume(min(TAKE_RECORDS, left), 5.0)
            times = [message.timestamp() for message in messages]
            rows = pa.RecordBatch.from_pydict(
                {
                    "key": pa.array([message.key() for message in messages], pa.binary()),
                    "value": pa.array([message.value() for message in messages], pa.binary()),
                    "topic": [message.topic() for message in messages],
                    "partition": [message.partition() for message in messages],
                    "offset": [message.offset() for message in messages],
                    "timestamp": [each[1] for each in times],
                    "timestampType": [each[0] for each in times],
                    "headers": [message.headers() for message in messages],
                }
            )
            left -= rows.num_rows
            size += rows.num_rows and value_bytes_of(rows)
        assert size == job["count"] * job["value_bytes"], size
        consumer.unassign()

    def one_by_one(self, job: Job) -> list[float]:
        producer, value, took = self._producer(job, {"linger.ms": 0}), bytes(job["value_bytes"]), []
        for _ in range(job["count"]):
            started = time.perf_counter()
            producer.produce(job["topic"], value)
            producer.flush()
            took.append(time.perf_counter() - started)
        return took

    def idle(self, job: Job) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": job["bootstrap"], "group.id": job["group"], "auto.offset.reset": "latest"}
        consumer = Consumer(settings)
        try:
            consumer.subscribe([job["topic"]])
            wait_until(lambda: consumer.poll(0.1) or consumer.assignment())
            measure_rest(job, consumer.poll)
        finally:
            consumer.close()

    def fill_memory(self, job: Job) -> int:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": job["bootstrap"],
                "queue.buffering.max.kbytes": job["bytes_max"] // 1024,
                "queue.buffering.max.messages": 0,
            }
        )
        self._stuck = producer
        producer.list_topics(job["topic"], 10)
        job["begin"]()
        job["pause"]()
        return sent_until_full(job, lambda value: producer.produce(job["topic"], value), BufferError)

    def hold_memory(self, job: Job) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": job["bootstrap"],
                "group.id": "bench",
                "fetch.max.bytes": job["bytes_max"],
                "fetch.message.max.bytes": 1 << 20,
                "queued.max.messages.kbytes": job["bytes_max"] // 1024,
            }
        )
        consumer.list_topics(job["topic"], 10)
        job["begin"]()
        consumer.assign([TopicPartition(job["topic"], index, 0) for index in range(job["partitions"])])
        wait_until(lambda: consumer.poll(0.1))
        time.sleep(job["seconds"])
        consumer.close()


# -- kafka-python ------------------------------------------------------------------------------------------------------


class KafkaPython:
    def __init__(self) -> None:
        if importlib.util.find_spec("crc32c") is None:  # the checksum in C that its documentation recommends
            from ottla.records import codec

            lent = types.ModuleType("crc32c")
            lent.crc32c = codec.crc32c  # type: ignore[attr-defined]
            sys.modules["crc32c"] = lent
        self._producers: dict[str, Any] = {}
        self._consumer: Any = None

    def _producer(self, job: Job, **settings: Any) -> Any:
        from kafka import KafkaProducer

        key = json.dumps(settings)
        if key not in self._producers:
            self._producers[key] = KafkaProducer(bootstrap_servers=job["bootstrap"], acks="all", **settings)
        return self._producers[key]

    def send(self, job: Job) -> None:
        producer = self._producer(job, **with_settings(job, {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}))
        values, topic = values_of(job["value_bytes"]), job["topic"]
        for number in range(job["count"]):
            producer.send(topic, values[number & 63])
        producer.flush()

    def _reading(self, job: Job) -> Any:
        from kafka import KafkaConsumer, TopicPartition

        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=job["bootstrap"],
                enable_auto_commit=False,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_poll_records=TAKE_RECORDS,
            )
        partitions = [TopicPartition(job["topic"], index) for index in range(job["partitions"])]
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, 0)
        return self._consumer

    def iterate(self, job: Job) -> None:
        left, size = job["count"], 0
        for record in self._reading(job):
            size += len(record.value)
            left -= 1
            if not left:
                break
        assert size == job["count"] * job["value_bytes"], size

    def poll(self, job: Job) -> None:
        consumer, left, size = self._reading(job), job["count"], 0
        while left > 0:
            for records in consumer.poll(timeout_ms=5000).values():
                for record in records:
                    size += len(record.value)
                left -= len(records)
        assert size == job["count"] * job["value_bytes"], size

    def one_by_one(self, job: Job) -> list[float]:
        producer, value, took = self._producer(job, linger_ms=0), bytes(job["value_bytes"]), []
        for _ in range(job["count"]):
            started = time.perf_counter()
            producer.send(job["topic"], value).get(60)
            took.append(time.perf_counter() - started)
        return took

    def idle(self, job: Job) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="latest"
        )
        try:
            wait_until(lambda: consumer.poll(timeout_ms=100) or consumer.assignment())
            measure_rest(job, lambda left_s: consumer.poll(timeout_ms=int(left_s * 1000) + 1))
        finally:
            consumer.close()


# -- aiokafka ----------------------------------------------------------------------------------------------------------


class AioKafka(OnLoop):
    async def _producer(self, job: Job, **settings: Any) -> Any:
        from aiokafka import AIOKafkaProducer

        key = json.dumps(settings)
        if key not in self._producers:
            self._producers[key] = AIOKafkaProducer(
                bootstrap_servers=job["bootstrap"], acks="all", enable_idempotence=True, **settings
            )
            await self._producers[key].start()
        return self._producers[key]

    async def _send(self, job: Job) -> None:
        tuned = with_settings(job, {"linger_ms": LINGER_MS, "max_batch_size": BATCH_BYTES})
        producer = await self._producer(job, **tuned)
        values, topic = values_of(job["value_bytes"]), job["topic"]
        for number in range(job["count"]):
            await producer.send(topic, values[number & 63])
        await producer.flush()

    async def _reading(self, job: Job) -> Any:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=job["bootstrap"],
                enable_auto_commit=False,
                fetch_max_wait_ms=FETCH_WAIT_MS,
            )
            await self._consumer.start()
        partitions = [TopicPartition(job["topic"], index) for index in range(job["partitions"])]
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, 0)
        return self._consumer

    async def _iterate(self, job: Job) -> None:
        left, size = job["count"], 0
        async for record in await self._reading(job):
            size += len(record.value)
            left -= 1
            if not left:
                break
        assert size == job["count"] * job["value_bytes"], size

    async def _poll(self, job: Job) -> None:
        consumer, left, size = await self._reading(job), job["count"], 0
        while left > 0:
            for records in (await consumer.getmany(timeout_ms=5000, max_records=TAKE_RECORDS)).values():
                for record in records:
                    size += len(record.value)
                left -= len(records)
        assert size == job["count"] * job["value_bytes"], size

    async def _one_by_one(self, job: Job) -> list[float]:
        producer, value, took = await self._producer(job, linger_ms=0), bytes(job["value_bytes"]), []
        for _ in range(job["count"]):
            started = time.perf_counter()
            await producer.send_and_wait(job["topic"], value)
            took.append(time.perf_counter() - started)
        return took

    async def _idle(self, job: Job) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            job["topic"], bootstrap_servers=job["bootstrap"], group_id=job["group"], auto_offset_reset="latest"
        )
        await consumer.start()
        try:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            await measure_rest_on_loop(job, lambda left_s: consumer.getmany(timeout_ms=int(left_s * 1000) + 1))
        finally:
            await consumer.stop()


# -- what they share ---------------------------------------------------------------------------------------------------


def arrow_values(job: Job) -> Any:
    """A column of values, made once: making it is no part of sending it."""
    import pyarrow as pa

    key = (job["count"], job["value_bytes"])
    if key not in _columns:
        _columns.clear()
        values = values_of(job["value_bytes"])
        _columns[key] = pa.array([values[number & 63] for number in range(job["count"])], pa.binary())
    return _columns[key]


_columns: dict[tuple[int, int], Any] = {}


def value_bytes_of(rows: Any) -> int:
    """The bytes of a column of values, by its offsets."""
    column = rows.column("value")
    offsets = memoryview(column.buffers()[1]).cast("B").cast("i")
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "the client never got there"


def measure_rest(job: Job, poll: Callable[[float], Any]) -> None:
    """Polls for records that do not come, and notes what that costs."""
    rest = Rest(job)
    while (left_s := rest.left_s) > 0:
        poll(min(1.0, left_s))
    rest.end()


async def measure_rest_on_loop(job: Job, poll: Callable[[float], Any]) -> None:
    rest = Rest(job)
    while (left_s := rest.left_s) > 0:
        await poll(min(1.0, left_s))
    rest.end()


class Rest:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._cpu_s, self._started = time.process_time(), time.perf_counter()

    @property
    def left_s(self) -> float:
        return float(self._job["seconds"]) - (time.perf_counter() - self._started)

    def end(self) -> None:
        seconds = time.perf_counter() - self._started
        self._job["found"]["percent_of_a_core"] = (time.process_time() - self._cpu_s) / seconds * 100


def sent_until_full(job: Job, send: Callable[[bytes], object], full: type[Exception]) -> int:
    """Sends until it is refused; how many bytes were taken."""
    tail, sent = bytes(job["value_bytes"] - 8), 0
    while sent < job["bytes_max"] * 4:
        try:
            send(sent.to_bytes(8, "big") + tail)
        except full:
            break
        sent += job["value_bytes"]
    return sent


def resident_mb(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1000
    raise AssertionError(name)


class Peak:
    """The most memory that a process had, beyond what it had when it was connected and `begin` was called."""

    def begin(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the kernel's peak is reset
        self._before_mb = resident_mb("VmRSS")

    @property
    def more_mb(self) -> float:
        return resident_mb("VmHWM") - self._before_mb


def quantiles_of(took: Sequence[float]) -> Found:
    in_order = sorted(took)
    return {f"p{share}_ms": in_order[min(len(in_order) - 1, len(in_order) * share // 100)] * 1e3 for share in (50, 99)}


CLIENTS: dict[str, Callable[[], Any]] = {
    "ottla": Ottla,
    "ottla asyncio": OttlaOnLoop,
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


def do(client: Any, job: dict[str, Any]) -> Found:
    """One job, and what it took."""
    found: Found = {}
    job["found"] = found
    job["pause"] = lambda: os.kill(job["broker_pid"], signal.SIGSTOP)  # whoever asked for it lets the broker go on
    work = job["work"]
    started, cpu_s = time.perf_counter(), time.process_time()
    if work in ("fill_memory", "hold_memory"):
        peak = Peak()
        job["begin"] = peak.begin
        taken_bytes = getattr(client, work)(job)
        found |= {"peak_mb_more": peak.more_mb, "taken_mb": (taken_bytes or 0) / 1e6}
    elif work == "one_by_one":
        found |= quantiles_of(client.one_by_one(job))
    else:
        getattr(client, work)(job)
    return {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_s, **found}


def main() -> None:
    client = CLIENTS[sys.argv[1]]()
    for line in sys.stdin:
        print(json.dumps(do(client, json.loads(line))), flush=True)
    os._exit(0)  # a producer whose broker stood still is not waited for


if __name__ == "__main__":
    main()
