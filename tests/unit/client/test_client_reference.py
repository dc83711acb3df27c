"""The API reference is up to date, and every method has a sentence."""

from __future__ import annotations

from pathlib import Path

from ottla.client.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client-api.md"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), "run: python -m ottla.client.reference > docs/reference/client-api.md"


def test_every_method_says_what_it_does() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []
