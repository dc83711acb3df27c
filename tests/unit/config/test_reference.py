from pathlib import Path

from ottla.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.config.reference import settings_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_the_page_of_settings_is_current() -> None:
    hint = "run: python -m ottla.config.reference > docs/reference/settings.md"
    assert PAGE.read_text(encoding="utf-8") == settings_page(), hint


def test_the_page_has_every_setting() -> None:
    page = settings_page()
    assert [
        name for name in (*BROKER_SETTINGS, *GROUP_SETTINGS, *TOPIC_SETTINGS) if f"\n| `{name}` | " not in page
    ] == []
