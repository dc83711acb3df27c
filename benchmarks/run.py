"""Runs the benchmarks one after the other and writes what they saw: JSON for machines, a page for people.

    python benchmarks/run.py [--only NAME] [--rounds N] [--warm-up SECONDS] [--rehearse] [--out DIR]

Each benchmark is a module beside this one with `run() -> dict`. Those that compare with others (`COMPARING`) take a
plan and a scale, warm everybody up and take turns, see turns.py; their figures are medians. Those of our own code alone
are the smallest of several rounds. Compare figures of one run, not of two. Results are written after each benchmark:
JSON, a page, and tables of Markdown that `tables.py` can put into docs/reference/measured.md. `--rehearse` runs what
compares, small and once, to see that everything works: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import security
import tables
import turns
from ottla.records import codec

BENCHMARKS = (
    "codec",
    "protocol",
    "storage",
    "peers",
    "clients",
    "groups",
    "transactions",
    "neighbour",
    "security",
    "cluster",
    "spark",
    "pipelines",
)
COMPARING = ("peers", "clients", "groups", "transactions", "security", "cluster", "spark", "pipelines")


@dataclass(frozen=True)
class Goal:
    """A figure that was promised: where it stands in the results, and the number it must reach."""

    title: str
    path: tuple[str, ...]
    limit: float
    unit: str
    more_is_better: bool

    def verdict(self, value: float) -> str:
        reached = value >= self.limit if self.more_is_better else value <= self.limit
        return "reached" if reached else "missed"


GROUP_RATIOS = ("ours_over_kafka",)
SPARK_RATIOS = ("spark", "ours_over_official", "ottla")
PIPELINE_RATIOS = ("pipelines", "ratios")

# Costs of ours that are held against Kafka's, by the place of the row and what it says.
RATIOS = {
    "commit of 1 offset, CPU": ("groups", "commit_of_1_offset", "cpu_us_per_commit"),
    "commit of 10 offsets, CPU": ("groups", "commit_of_10_offsets", "cpu_us_per_commit"),
    "100 members stable, time": ("groups", "becoming_stable", "100_members", "stable_ms"),
    "10,000 groups × 100 offsets, memory": ("groups", "many_groups_again", "resident_mb"),
    "transaction of 10 records, CPU": (
        "transactions",
        "of_10_records_in_4_partitions",
        "cpu_us_per_transaction",
    ),
    **{
        f"{work}, {title}, {load.name}, CPU": ("security", "bulk", f"{title}, {load.name}", f"{work}_cpu_s_per_gb")
        for title in security.TITLES.values()
        for load in security.BULK_LOADS
        for work in ("produce", "consume")
    },
    **{f"{title}, CPU": ("security", "connections", title, "cpu_us_each") for title in security.CONNECTING},
}

CLIENT_RATIOS = ("clients", "ratios")
CLIENT_ROWS = {"send": ("send, 100 B", "send, 1024 B"), "iterate": ("iterate, 100 B", "iterate, 1024 B")}
COLUMN_ROWS = ("send columns, 100 B", "send columns, 1024 B", "poll columns, 100 B", "poll columns, 1024 B")

GOALS = (
    Goal(
        "append, 16 KiB batches", ("storage", "append_16k", "ottla", "cpu_s_per_gb", "median"), 0.9, "CPU-s/GB", False
    ),
    Goal("append, 1 MB batches", ("storage", "append_1m", "ottla", "cpu_s_per_gb", "median"), 0.5, "CPU-s/GB", False),
    Goal(
        "Produce request, bytes to answer, without system calls",
        ("storage", "produce_request_without_system_calls_us"),
        15,
        "µs",
        False,
    ),
    Goal(
        "Produce request through the dispatcher, repeated, its write included",
        ("storage", "produce_request_by_dispatcher", "repeated_us"),
        15,
        "µs",
        False,
    ),
    Goal("clean start, 100 segments", ("storage", "clean_start_100_segments_s"), 1, "s", False),
    Goal("recovery of an unclean 1 GiB segment", ("storage", "recovery_1_gib", "recover_mb_per_s"), 500, "MB/s", True),
    Goal("compaction, 10,000 keys", ("storage", "compaction_few_keys", "mb_per_s"), 100, "MB/s", True),
    Goal("compaction, 1,000,000 keys", ("storage", "compaction_many_keys", "mb_per_s"), 100, "MB/s", True),
    *(Goal(f"{title}, over Kafka's", (*GROUP_RATIOS, title), 1, "×", False) for title in RATIOS),
    Goal(
        "a start with 1 M offsets",
        ("groups", "many_groups_again", "ottla", "start_to_loaded_s", "median"),
        5,
        "s",
        False,
    ),
    *(
        Goal(f"{row}: {name}'s time over ours", (*CLIENT_RATIOS, row, name, "s_per_million"), times, "×", True)
        for rows in CLIENT_ROWS.values()
        for row in rows
        for name, times in {"confluent-kafka": 1, "kafka-python": 5, "aiokafka": 5}.items()
    ),
    *(
        Goal(
            f"{row}: confluent-kafka's CPU over ours",
            (*CLIENT_RATIOS, row, "confluent-kafka", "cpu_s_per_million"),
            10,
            "×",
            True,
        )
        for row in COLUMN_ROWS
    ),
    *(
        Goal(f"{title} with ACLs over without", ("security", "cost_of_acls", title, "ratio"), 1.1, "×", False)
        for title in security.requests()
    ),
    Goal("idle consumer", ("clients", "idle", "ottla", "percent_of_a_core"), 0.5, "% core", False),
    Goal("import of ottla", ("clients", "imports", "ottla", "s", "median"), 0.1, "s", False),
    Goal("Spark source, rows/s over the official one", (*SPARK_RATIOS, "source_rows_per_s"), 1.5, "×", True),
    Goal("Spark source, CPU over the official one", (*SPARK_RATIOS, "source_cpu"), 1, "×", False),
    Goal("Spark sink, rows/s over the official one", (*SPARK_RATIOS, "sink_rows_per_s"), 1, "×", True),
    Goal("Spark micro-batch of 100 rows over the official one", (*SPARK_RATIOS, "micro_batch_ms"), 1, "×", False),
    Goal("idle Spark query", ("spark", "idle_percent_of_a_core", "ours on ottla", "spark"), 3, "% core", False),
    Goal(
        "batch of 100,000 rows exactly once over the official at-least-once one",
        (*PIPELINE_RATIOS, "exactly_once_over_official"),
        1,
        "×",
        False,
    ),
    Goal(
        "batch of 100,000 rows exactly once over ours at least once",
        (*PIPELINE_RATIOS, "exactly_once_over_at_least_once"),
        1.15,
        "×",
        False,
    ),
)


def machine() -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "compiled_core": codec.NATIVE,
    }


def leaves(results: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in results.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def lookup(results: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = results
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def page(results: Mapping[str, Any]) -> str:
    """One HTML file without anything outside it."""
    rows = []
    for goal in GOALS:
        value = lookup(results, goal.path)
        if value is None:
            continue
        verdict = goal.verdict(value)
        share = min(1.0, value / goal.limit if goal.more_is_better else goal.limit / value if value else 1.0)
        rows.append(
            f"<tr class={verdict}><td>{html.escape(goal.title)}<td class=n>{shown(value)}<td>{goal.unit}"
            f"<td class=n>{'≥' if goal.more_is_better else '≤'} {goal.limit:g}"
            f"<td><div class=bar style='width:{share * 12:.1f}em'></div><td>{verdict}"
        )
    sections = []
    for name in BENCHMARKS:
        if name in results:
            lines = "".join(
                f"<tr><td>{html.escape(' · '.join(path))}<td class=n>{html.escape(shown(value))}"
                for path, value in leaves(results[name])
            )
            sections.append(f"<h2>{name}</h2><table>{lines}</table>")
    about = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    return f"""<!doctype html><meta charset=utf-8><title>Ottla benchmarks</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; width: 100% }} td {{ padding: .2em .6em; border-bottom: 1px solid #e4e4e4 }}
.n {{ text-align: right; font-variant-numeric: tabular-nums }} .bar {{ background: #4a8; height: .8em }}
.missed .bar {{ background: #c64 }} .missed td:last-child {{ color: #c64; font-weight: bold }}
</style>
<h1>Ottla benchmarks</h1><p>{html.escape(about)}</p>
<h2>What was promised</h2><table>{"".join(rows)}</table>{"".join(sections)}
"""


def ours_over_kafka(results: Mapping[str, Any]) -> dict[str, float]:
    """Costs as shares of Kafka's, medians: less than 1 is better."""
    compared = {}
    for title, (*row, what) in RATIOS.items():
        ours, theirs = (lookup(results, (*row, who, what, "median")) for who in ("ottla", "kafka"))
        if ours is not None and theirs:
            compared[title] = ours / theirs
    return compared


def write(results: Mapping[str, Any], directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    files = {
        "results.json": json.dumps(results, indent=2),
        "index.html": page(results),
        "tables.md": "\n".join(f"## {name}\n\n{text}" for name, text in tables.all_tables(results).items()),
    }
    for name, text in files.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run just this one; may be repeated")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help="where the results go (default: %(default)s)")
    parser.add_argument("--rehearse", action="store_true", help="what compares with others, small and once")
    parser.add_argument("--rounds", type=int, default=turns.ROUNDS, metavar="N", help="that count (%(default)s)")
    parser.add_argument(
        "--warm-up", type=float, default=turns.WARM_UP_S, metavar="S", help="at most, for each row (%(default)s)"
    )
    arguments = parser.parse_args()
    plan, scale = turns.Plan(arguments.rounds, arguments.warm_up), 1.0
    if arguments.rehearse:
        plan, scale = turns.REHEARSAL, turns.REHEARSAL_SCALE
    results: dict[str, Any] = {"machine": machine()}
    for name in arguments.only or (COMPARING if arguments.rehearse else BENCHMARKS):
        print(f"{name} …", flush=True)
        started = time.monotonic()
        run = importlib.import_module(name).run
        results[name] = run(plan, scale) if name in COMPARING else run()
        results["ours_over_kafka"] = ours_over_kafka(results)
        write(results, arguments.out)
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
    for goal in GOALS:
        value = lookup(results, goal.path)
        if value is not None:
            print(f"  {goal.title:<72}{shown(value):>10} {goal.unit:<9} {goal.verdict(value)}")
    for place in tables.unfinished(results):
        print(f"  still getting better when its warm-up was over: {place}")
    print(f"written: {arguments.out}/results.json, index.html and tables.md")


if __name__ == "__main__":
    main()
