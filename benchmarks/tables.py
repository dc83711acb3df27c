"""What was measured as tables of Markdown, and the page that they stand in.

    python benchmarks/tables.py out/bench/results.json docs/reference/measured.md

puts each table between its two marks in the page (`<!-- table: NAME -->` … `<!-- end -->`); what stands around them is
written by hand. A table whose benchmark did not run stays as it was. A figure is a median, with the smallest and the
largest in brackets.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "—"


def number(value: float) -> str:
    """Three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown(spread: Mapping[str, float] | None, scale: float = 1.0) -> str:
    if spread is None:
        return NOTHING
    median, low, high = (number(spread[name] * scale) for name in ("median", "low", "high"))
    return f"{median} ({low}–{high})"


def rate(spread: Mapping[str, float] | None, amount: float = 1.0) -> str:
    """How much for one unit of cost, from the cost of `amount`."""
    if spread is None:
        return NOTHING
    turned = {"median": spread["median"], "low": spread["high"], "high": spread["low"]}
    return shown({name: amount / value for name, value in turned.items()})


def per_second(spread: Mapping[str, float] | None) -> str:
    """From microseconds for each."""
    return rate(spread, 1e6)


def times(theirs: Mapping[str, float] | None, ours: Mapping[str, float] | None) -> str:
    """How many times our cost theirs is."""
    if theirs is None or ours is None or not ours["median"]:
        return NOTHING
    ratio = theirs["median"] / ours["median"]
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 20 else f"{ratio:.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def at(results: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(results, Mapping) or name not in results:
            return None
        results = results[name]
    return results


def three(row: Mapping[str, Any], what: str, show: Callable[[Any], str] = shown) -> list[str]:
    """Ours, Kafka's, how many times ours that is, and the floor."""
    ours, theirs, ground = (at(row, name, what) for name in ("ottla", "kafka", "floor"))
    return [show(ours), show(theirs), times(theirs, ours), show(ground)]


def records(results: Any) -> str | None:
    rates = at(results, "codec", "millions_per_second")
    if rates is None:
        return None
    names = ("encode lists", "decode lists", "encode Arrow", "decode Arrow", "validate records")
    columns = ("ottla", "aiokafka", "kafka-python")
    rows = [
        [name, *(number(found) if (found := at(rates, column, name)) is not None else "" for column in columns)]
        for name in names
    ]
    return table(["M records/s of 100 B per core", "Ottla", "aiokafka", "kafka-python"], rows)


def log(results: Any) -> str | None:
    if at(results, "storage") is None:
        return None
    storage = results["storage"]
    rows = [
        [
            f"append, {name} batches, CPU-s/GB",
            *(shown(at(storage, key, who, "cpu_s_per_gb")) for who in ("ottla", "floor")),
        ]
        for name, key in (("16 KiB", "append_16k"), ("1 MB", "append_1m"))
    ]
    recovery = storage["recovery_1_gib"]
    plain = {
        "Produce request, bytes to answer, general way, no system calls, µs": storage[
            "produce_request_without_system_calls_us"
        ],
        "the same through the dispatcher, repeated, its write included, µs": storage["produce_request_by_dispatcher"][
            "repeated_us"
        ],
        "start on a clean log of 100 segments, s": storage["clean_start_100_segments_s"],
        "compaction in another process, 10,000 keys, MB/s": storage["compaction_few_keys"]["mb_per_s"],
        "compaction in another process, 1,000,000 keys, MB/s": storage["compaction_many_keys"]["mb_per_s"],
    }
    rows += [[name, number(value), NOTHING] for name, value in plain.items()]
    rows.append(
        [
            "recovery of an unclean 1 GiB segment, from the page cache, MB/s (floor: reading it)",
            number(recovery["recover_mb_per_s"]),
            number(recovery["page_cache_read_mb_per_s"]),
        ]
    )
    return table(["", "Ottla", "floor"], rows)


def tiny(results: Any) -> str | None:
    loads = at(results, "peers", "tiny")
    if loads is None:
        return None
    head = [
        "tiny Produce requests, µs of broker CPU",
        "Ottla",
        "Kafka",
        "Kafka / Ottla",
        "floor",
        "p99 ms Ottla / Kafka",
    ]
    rows = [
        [
            name,
            *three(row, "cpu_us_per_request"),
            f"{shown(at(row, 'ottla', 'p99_ms'))} / {shown(at(row, 'kafka', 'p99_ms'))}",
        ]
        for name, row in loads.items()
    ]
    return table(head, rows)


def bulk(results: Any) -> str | None:
    loads = at(results, "peers", "bulk")
    if loads is None:
        return None
    head = ["librdkafka, acks=all, CPU-s/GB", "Ottla", "Kafka", "Kafka / Ottla", "floor"]
    rows = [
        [f"{work} {name}", *three(row, f"{work}_cpu_s_per_gb")]
        for work in ("produce", "consume")
        for name, row in loads.items()
    ]
    return table(head, rows)


def process(results: Any) -> str | None:
    peers = at(results, "peers")
    if peers is None:
        return None
    memory = peers["resident_mb"]
    rows = [
        ["ready after process start, s", *(shown(at(peers, "ready", who, "ready_s")) for who in ("ottla", "kafka"))],
        [
            "resident after the run, MB",
            *(number(memory[who]) if who in memory else NOTHING for who in ("ottla", "kafka")),
        ],
    ]
    return table(["", "Ottla", "Kafka"], rows)


CLIENTS = ("ottla", "ottla asyncio", "confluent-kafka", "kafka-python", "aiokafka")


def clients(results: Any) -> str | None:
    measured = at(results, "clients")
    if measured is None:
        return None
    rows = []
    for name, row in measured["throughput"].items():
        costs = [at(row, client, "s_per_million") for client in CLIENTS]
        rows.append([f"{name}: M records/s", *map(rate, costs)])
        rows.append(
            ["CPU-s of the client per M records", *(shown(at(row, each, "cpu_s_per_million")) for each in CLIENTS)]
        )
    sends = measured["one_by_one"]
    rows += [
        [f"one send with acks=all at a time: {what}, ms", *(shown(at(sends, each, f"{what}_ms")) for each in CLIENTS)]
        for what in ("p50", "p99")
    ]
    for title, path, what in (
        ("an idle consumer in a group: % of a core", "idle", "percent_of_a_core"),
        ("producer that may hold 16.8 MB, broker stopped: MB", "memory", "producer_mb"),
        ("consumer that may fetch 16.8 MB and reads no further: MB", "memory", "consumer_mb"),
    ):
        found = [at(measured, path, each, what) for each in CLIENTS]
        rows.append([title, *(NOTHING if value is None else number(value) for value in found)])
    imported = measured["imports"]
    names = ("ottla, its clients", "ottla.aio, its clients", *CLIENTS[2:])
    rows.append(["import of the clients, s", *(shown(at(imported, each, "s")) for each in names)])
    rows.append(["`import ottla` alone, s", shown(at(imported, "ottla", "s")), *[NOTHING] * 4])
    return table(["", "Ottla", "Ottla, asyncio", *CLIENTS[2:]], rows)


def groups(results: Any) -> str | None:
    measured = at(results, "groups")
    rows: list[list[str]] = []
    if measured is not None:
        for name, key in (("1 offset", "commit_of_1_offset"), ("10 offsets", "commit_of_10_offsets")):
            rows.append([f"commits of {name} per CPU-second", *three(measured[key], "cpu_us_per_commit", per_second)])
        for count in ("1", "10", "100"):
            row = measured["becoming_stable"][f"{count}_members"]
            rows.append([f"a group of {count} is stable after, ms", *three(row, "stable_ms")])
        again = measured["many_groups_again"]
        offsets = measured["many_groups"]["ottla"]["offsets"]
        rows.append([f"{offsets:,} offsets: memory of the broker with them, MB", *three(again, "resident_mb")])
        rows.append(["the same, process start to loaded, s", *three(again, "start_to_loaded_s")])
    ended = at(results, "transactions", "of_10_records_in_4_partitions")
    if ended is not None:
        what = "transactions of 10 records in 4 partitions, per CPU-second"
        rows.append([what, *three(ended, "cpu_us_per_transaction", per_second)])
    if not rows:
        return None
    return table(["", "Ottla", "Kafka", "Kafka's cost / ours", "floor"], rows)


def security(results: Any) -> str | None:
    measured = at(results, "security")
    if measured is None:
        return None
    rows = []
    for name, row in measured["bulk"].items():
        for work in ("produce", "consume"):
            rows.append([f"{work}, {name}: CPU-s/GB", *three(row, f"{work}_cpu_s_per_gb")[:3]])
            rows.append(["the same: MB/s", *three(row, f"{work}_s_per_gb", lambda cost: rate(cost, 1000))[:3]])
    for name, row in measured["connections"].items():
        rows.append([f"{name}: per CPU-second", *three(row, "cpu_us_each", per_second)[:3]])
    return table(["", "Ottla", "Kafka", "Kafka's cost / ours"], rows)


def acls(results: Any) -> str | None:
    measured = at(results, "security", "cost_of_acls")
    if measured is None:
        return None
    rows = [
        [name, *(shown(row[who]["cpu_us_per_request"]) for who in ("without", "with ACLs")), f"{row['ratio']:.2f}"]
        for name, row in measured.items()
    ]
    return table(["µs of broker CPU", "without ACLs", "with 1,000 ACLs", "with / without"], rows)


def cluster(results: Any) -> str | None:
    measured = at(results, "cluster")
    if measured is None:
        return None
    rows = []
    for name, row in measured["bulk"].items():
        rows.append([f"{name}: CPU-s of the brokers per GB", *three(row, "cpu_s_per_gb")[:3]])
        rows.append([f"{name}: MB/s", *three(row, "s_per_gb", lambda cost: rate(cost, 1000))[:3]])
    sends = measured["one_by_one"]
    rows.append(["a record at a time: CPU of the brokers, µs", *three(sends, "cpu_us_per_send")[:3]])
    rows += [[f"the same: {name}, ms", *three(sends, f"{name}_ms")[:3]] for name in ("p50", "p99")]

    behind = measured["catch_up"]
    rows.append(["catching up after 300 MB, MB/s", *three(behind, "s_per_gb", lambda cost: rate(cost, 1000))[:3]])
    rows.append(["the same: CPU-s of the brokers per GB", *three(behind, "cpu_s_per_gb")[:3]])

    def once(title: str, place: str, what: str) -> list[str]:
        ours, theirs = (measured[place][kind][what] for kind in ("ottla", "kafka"))
        return [title, number(ours), number(theirs), f"{theirs / ours:.2g}"]

    rows += [
        once("a topic of 1,000 partitions: answered, s", "many_partitions", "create_answered_s"),
        once("the same: all in sync, s", "many_partitions", "create_in_sync_s"),
        once("at rest with 3,000 replicas: % of a core", "many_partitions", "idle_percent_of_a_core"),
        once("the same: memory, MB", "many_partitions", "resident_mb"),
        once("controlled shutdown of a broker with 1,000 leaders, s", "many_partitions", "controlled_shutdown_s"),
        once("longest gap between writes, leader stopped, s", "failover", "gap_leader_stopped_s"),
        once("the same, leader killed (session of 6 s), s", "failover", "gap_leader_killed_s"),
        once("the same, behind the end of the session, s", "failover", "leader_killed_after_session_s"),
        once("a new controller after a kill (session of 6 s), s", "failover", "new_controller_s"),
        once("the same, behind the end of the session, s", "failover", "new_controller_after_session_s"),
    ]
    return table(["three brokers together", "Ottla", "Kafka 3.9", "Kafka's cost / ours"], rows)


def spark(results: Any) -> str | None:
    measured = at(results, "spark")
    if not measured:
        return None
    columns = [f"{form} on {broker}" for broker in ("ottla", "kafka") for form in ("ours", "official")]

    def row(title: str, work: str, what: str, show: Callable[[Any], str], ground: str | None = None) -> list[str]:
        costs = [at(measured, work, column, what) for column in columns]
        return [title, *map(show, costs), NOTHING if ground is None else show(at(measured, work, ground, what))]

    making_rows = "nothing on ottla"
    seconds, cpu = "s_per_million_rows", "spark_cpu_s_per_million_rows"
    idle = measured["idle_percent_of_a_core"]
    rows = [
        row("source, M rows/s", "source", seconds, rate),
        row("source, CPU-s of Spark per M rows", "source", cpu, shown),
        row("sink, M rows/s", "sink", seconds, rate, making_rows),
        row("sink, CPU-s of Spark per M rows", "sink", cpu, shown, making_rows),
        row("micro-batch of 100 rows, ms", "micro_batch", "micro_batch_ms", shown),
        ["idle query, % of a core", *(number(idle[column]["spark"]) for column in columns), NOTHING],
    ]
    return table(["", *columns, "floor: rows made and thrown away"], rows)


def sessions(results: Any) -> str | None:
    starts = at(results, "spark", "session_start")
    if starts is None:
        return None
    kinds = {"`ottla.spark.session`": "ours", "plain": "plain"}
    rows = [
        [title, *(shown(starts[kind][what]) for what in ("seconds", "java_cpu_s"))] for title, kind in kinds.items()
    ]
    return table(["session start", "s", "CPU-s of Java"], rows)


def pipelines(results: Any) -> str | None:
    """Sinks on both brokers; what decodes and what writes tables on ours."""
    measured = at(results, "pipelines")
    if not measured:
        return None
    kinds = ("exactly-once", "ours", "official")

    def of_sinks(title: str, work: str, what: str, show: Callable[[Any], str] = shown) -> list[list[str]]:
        return [
            [
                f"{title}, on {broker}",
                *(show(at(measured, work, f"{kind} on {broker}", what)) for kind in kinds),
                show(at(measured, work, "nothing", what)),
            ]
            for broker in ("ottla", "kafka")
            if at(measured, work, f"ours on {broker}") is not None
        ]

    rows = [
        *of_sinks("batch of 100,000 rows, ms", "sink_100k", "batch_ms"),
        *of_sinks("the same, CPU-s of Spark per M rows", "sink_100k", "spark_cpu_s_per_million_rows"),
        *of_sinks("topic to topic, batch of 100 rows, ms", "sink_100", "micro_batch_ms"),
    ]
    return table(["", "exactly once", "at least once", "official, at least once", "floor: rows thrown away"], rows)


def decoding(results: Any) -> str | None:
    measured = at(results, "pipelines")
    if not measured:
        return None
    costs = {"M rows/s": ("s_per_million_rows", rate), "CPU-s per M rows": ("spark_cpu_s_per_million_rows", shown)}
    rows = [
        [
            f"{title}, {unit}",
            *(show(at(measured, work, who, what)) for who in (ours, "official", "nothing")),
        ]
        for title, work, ours in (
            ("JSON", "decode_json", "ours"),
            ("Avro", "decode_avro", "ours"),
            ("topic to Delta; official: to Parquet", "table", "Delta"),
            ("topic to Parquet", "table", "Parquet"),
        )
        for unit, (what, show) in costs.items()
    ]
    return table(["", "ours", "Spark's own", "floor: bytes thrown away"], rows)


TABLES: dict[str, Callable[[Any], str | None]] = {
    "records": records,
    "log": log,
    "tiny": tiny,
    "bulk": bulk,
    "process": process,
    "clients": clients,
    "groups": groups,
    "security": security,
    "acls": acls,
    "cluster": cluster,
    "spark": spark,
    "sessions": sessions,
    "pipelines": pipelines,
    "decoding": decoding,
}


def all_tables(results: Any) -> dict[str, str]:
    """Those that these results can fill."""
    made = {name: make(results) for name, make in TABLES.items()}
    return {name: text for name, text in made.items() if text is not None}


def unfinished(results: Any, path: tuple[str, ...] = ()) -> list[str]:
    """Where the warm-up was over before the costs stopped falling: to be told beside the table."""
    if not isinstance(results, Mapping):
        return []
    found = [
        " · ".join((*path, name))
        for name, each in (at(results, "warm_up") or {}).items()
        if each["rounds"] and not each["is_warm"]
    ]
    for name, value in results.items():
        found += unfinished(value, (*path, name)) if name != "warm_up" else []
    return found


def put_into(page: str, tables: Mapping[str, str]) -> str:
    unknown = {matched[2] for matched in MARKED.finditer(page)} - set(TABLES)
    if unknown:
        raise ValueError(f"the page asks for tables that nobody makes: {sorted(unknown)}")
    return MARKED.sub(lambda found: found[1] + tables[found[2]] + found[3] if found[2] in tables else found[0], page)


def main() -> None:
    results_path, page_path = map(Path, sys.argv[1:])
    results = json.loads(results_path.read_text())
    page_path.write_text(put_into(page_path.read_text(), all_tables(results)))
    for place in unfinished(results):
        print(f"still getting better when its warm-up was over: {place}")


if __name__ == "__main__":
    main()
