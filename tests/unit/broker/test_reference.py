from pathlib import Path

from ottla.broker.handlers import HANDLERS
from ottla.broker.reference import NOT_SERVED, api_support
from ottla.protocol.versions import API_TABLE

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api-support.md"


def test_the_page_of_supported_apis_is_current() -> None:
    hint = "run: python -m ottla.broker.reference > docs/reference/api-support.md"
    assert PAGE.read_text(encoding="utf-8") == api_support(), hint


def test_whatever_a_broker_of_kafka_announces_is_served_by_one_broker_or_has_a_reason() -> None:
    announced = {api.key for api in API_TABLE.values() if api.advertised is not None and "broker" in api.listeners}
    assert announced - HANDLERS.keys() == NOT_SERVED.keys()
