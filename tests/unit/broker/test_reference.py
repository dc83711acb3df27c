from pathlib import Path

from ottla.broker.reference import api_support

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api-support.md"


def test_the_page_of_supported_apis_is_current() -> None:
    hint = "run: python -m ottla.broker.reference > docs/reference/api-support.md"
    assert PAGE.read_text(encoding="utf-8") == api_support(), hint
