"""Tables of what was measured, and the page that they are put into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tables import MARKED, TABLES, all_tables, put_into, unfinished

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "measured.md"


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": median / 2, "high": median * 2, "rounds": 7}


def row(ours: float, theirs: float, ground: float) -> dict[str, object]:
    sides = {"ottla": ours, "kafka": theirs, "floor": ground}
    costs = {who: {"cpu_us_per_request": spread(cost), "p99_ms": spread(1)} for who, cost in sides.items()}
    return {**costs, "warm_up": {who: {"rounds": 6, "seconds": 1.0, "is_warm": who != "kafka"} for who in sides}}


def results() -> dict[str, object]:
    return {"peers": {"tiny": {"1 × 100": row(10, 125, 2.5)}, "ready": {}, "resident_mb": {"ottla": 40.0}}}


def test_a_row_shows_ours_theirs_how_many_times_and_the_floor() -> None:
    line = all_tables(results())["tiny"].splitlines()[-1]
    assert line == "| 1 × 100 | 10 (5–20) | 125 (62.5–250) | 12.5 | 2.5 (1.25–5) | 1 (0.5–2) / 1 (0.5–2) |"


def test_what_was_not_measured_has_no_table_and_stays_on_the_page() -> None:
    tables = all_tables(results())
    assert "groups" not in tables
    page = "<!-- table: tiny -->\nold\n<!-- end -->\nwords\n<!-- table: groups -->\nold\n<!-- end -->\n"
    changed = put_into(page, tables)
    assert (
        changed
        == f"<!-- table: tiny -->\n{tables['tiny']}<!-- end -->\nwords\n<!-- table: groups -->\nold\n<!-- end -->\n"
    )
    assert put_into(changed, tables) == changed


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing_of_ours"):
        put_into("<!-- table: nothing_of_ours -->\n<!-- end -->", {})


def test_who_was_not_warm_is_told() -> None:
    assert unfinished(results()) == ["peers · tiny · 1 × 100 · kafka"]


def test_the_page_has_a_place_for_every_table() -> None:
    assert {found[2] for found in MARKED.finditer(PAGE.read_text())} == set(TABLES)


def test_sinks_are_shown_on_the_brokers_that_were_measured() -> None:
    sinks = {
        f"{kind} on ottla": {"batch_ms": spread(number), "spark_cpu_s_per_million_rows": spread(1)}
        for number, kind in enumerate(("exactly-once", "ours", "official"), 1)
    }
    small = {f"{kind} on ottla": {"micro_batch_ms": spread(4)} for kind in ("exactly-once", "ours", "official")}
    shown = all_tables({"pipelines": {"sink_100k": sinks, "sink_100": small}})["pipelines"]
    assert "| batch of 100,000 rows, ms, on ottla | 1 (0.5–2) | 2 (1–4) | 3 (1.5–6) | — |" in shown
    assert "kafka" not in shown
