"""Runs the benchmarks one after the other and writes what they saw: JSON for machines, a page for people.

    python benchmarks/run.py [--only NAME] [--out DIR]

Each benchmark is a module beside this one with `run() -> dict`. Figures are CPU time of one core, smallest of several
rounds, unless their name says otherwise; compare figures of one run, not of two.
"""

from __future__ import annotations

import argparse
import html
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ottla.records import codec

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

BENCHMARKS = ("codec", "protocol", "storage", "peers", "groups", "transactions", "spark")


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


GROUP_RATIOS = ("groups", "ours_over_kafka")
SPARK_RATIOS = ("spark", "on_ottla", "ours_over_official")

GOALS = (
    Goal("append, 16 KiB batches", ("storage", "append_16k_cpu_s_per_gb"), 0.9, "CPU-s/GB", False),
    Goal("append, 1 MB batches", ("storage", "append_1m_cpu_s_per_gb"), 0.5, "CPU-s/GB", False),
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
    Goal("commit of 1 offset, CPU over Kafka's", (*GROUP_RATIOS, "cpu_of_a_commit_of_1_offset"), 1, "×", False),
    Goal("commit of 10 offsets, CPU over Kafka's", (*GROUP_RATIOS, "cpu_of_a_commit_of_10_offsets"), 1, "×", False),
    Goal("100 members stable, time over Kafka's", (*GROUP_RATIOS, "time_until_100_members_are_stable"), 1, "×", False),
    Goal("10,000 groups × 100 offsets, memory over Kafka's", (*GROUP_RATIOS, "memory_of_many_groups"), 1, "×", False),
    Goal("a start with 1 M offsets", ("groups", "ottla", "many_groups", "start_to_loaded_s"), 5, "s", False),
    Goal("Spark source, rows/s over the official one", (*SPARK_RATIOS, "source_rows_per_s"), 1.5, "×", True),
    Goal("Spark source, CPU over the official one", (*SPARK_RATIOS, "source_cpu"), 1, "×", False),
    Goal("Spark sink, rows/s over the official one", (*SPARK_RATIOS, "sink_rows_per_s"), 1, "×", True),
    Goal("Spark micro-batch of 100 rows over the official one", (*SPARK_RATIOS, "micro_batch_ms"), 1, "×", False),
    Goal("idle Spark query", ("spark", "on_ottla", "idle_percent_of_a_core", "ours", "spark"), 3, "% core", False),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run just this one; may be repeated")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help="where the results go (default: %(default)s)")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    for name in arguments.only or BENCHMARKS:
        print(f"{name} …", flush=True)
        results[name] = importlib.import_module(name).run()
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=2)
    with open(os.path.join(arguments.out, "index.html"), "w", encoding="utf-8") as file:
        file.write(page(results))
    for goal in GOALS:
        value = lookup(results, goal.path)
        if value is not None:
            print(f"  {goal.title:<72}{shown(value):>10} {goal.unit:<9} {goal.verdict(value)}")
    print(f"written: {arguments.out}/results.json and index.html")


if __name__ == "__main__":
    main()
