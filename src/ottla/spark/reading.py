"""Reading a range of a partition on an executor: Arrow batches straight from what brokers send."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import pyarrow as pa

from ottla.client.fetching import Fetcher, FetchOptions
from ottla.records import arrow
from ottla.spark.connections import client_options
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.schema import HEADERS, TIMESTAMP, arrow_schema
from ottla.spark.workers import client_for


def read_range(part: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(options.columns)
    settings = options.client
    fetch = FetchOptions(isolation=settings.isolation, max_wait_ms=settings.fetch_max_wait_ms)
    with client_for(options.bootstrap_servers, client_options(settings)) as client:
        fetcher = Fetcher(client.cluster, {part.partition: part.start_offset}, {part.partition: part.end_offset}, fetch)
        while not fetcher.is_done:
            for fetched in client.wait(fetcher.next()):
                rows = arrow.decode(fetched.data, fetched.position)
                offsets = rows["offset"].to_pylist()
                first, last = bisect_left(offsets, fetched.start_offset), bisect_left(offsets, fetched.end_offset)
                rows = rows.slice(first, last - first)
                count = rows.num_rows
                made = {
                    "key": rows["key"],
                    "value": rows["value"],
                    "topic": pa.repeat(pa.scalar(part.partition.topic, pa.string()), count),
                    "partition": pa.repeat(pa.scalar(part.partition.partition, pa.int32()), count),
                    "offset": rows["offset"],
                    "timestamp": rows["timestamp"].cast(TIMESTAMP),
                    "timestampType": pa.repeat(pa.scalar(int(fetched.header.is_log_append_time), pa.int32()), count),
                    "headers": rows["headers"].cast(HEADERS),
                }
                yield pa.RecordBatch.from_arrays([made[name] for name in options.columns], schema=schema)
        client.wait(fetcher.close())
