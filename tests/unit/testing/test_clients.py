"""The other end of the drivers, with a driver of a few lines in the place of a client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ottla.testing import clients
from ottla.testing.client_table import ClientTable, complete_table
from ottla.testing.clients import CLIENTS, FEATURES, Client, ClientError, Driver, StepError

ECHO = """
import json, sys
for line in sys.stdin:
    step = json.loads(line)
    if step["do"] == "refuse":
        print(json.dumps({"error": {"code": 3, "message": "unknown"}}), flush=True)
    elif step["do"] == "break":
        sys.exit("this is the end")
    elif step["do"] == "hang":
        import time; time.sleep(60)
    else:
        print(json.dumps({"ok": [step, sys.argv[1]]}), flush=True)
"""


@pytest.fixture
def start() -> Iterator[Callable[[], Driver]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Driver([sys.executable, "-c", ECHO], "host:1"))


def test_a_driver_answers_step_after_step_however_long(start: Callable[[], Driver]):
    driver = start()
    for text in ("short", "long " * 500_000):
        assert driver.do("say", text=text) == [{"do": "say", "text": text}, "host:1"]


def test_an_error_of_the_client_carries_its_code_and_the_driver_goes_on(start: Callable[[], Driver]):
    driver = start()
    with pytest.raises(StepError, match="unknown") as refused:
        driver.do("refuse")
    assert refused.value.code == 3
    assert driver.do("say")[1] == "host:1"


def test_a_driver_that_breaks_off_is_reported_with_its_last_words(start: Callable[[], Driver]):
    driver = start()
    with pytest.raises(ClientError, match="this is the end"):
        driver.do("break")
    assert not driver.is_running


def test_a_driver_that_hangs_is_ended(start: Callable[[], Driver], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clients, "STEP_TIMEOUT_S", 0.2)
    driver = start()
    with pytest.raises(ClientError, match="did not answer"):
        driver.do("hang")
    assert not driver.is_running


def test_a_client_says_which_program_is_missing():
    client = Client("odd", "1", "odd.py", lambda client, drivers: [], programs=("sh", "no-such-program"))
    assert client.missing_programs == ["no-such-program"]


def test_a_cell_of_the_table_holds_only_if_all_its_tests_passed():
    client, feature = CLIENTS[0], FEATURES[0]
    table = ClientTable()
    assert table.cell(client, feature) == "?"
    table.note(str(client), feature, passed=False)
    table.note(str(client), feature, passed=True)
    assert table.cell(client, feature) == "✗"
    assert complete_table().cell(client, feature) == "✓"


def test_the_table_names_each_client_in_its_version_and_each_reason():
    page = complete_table().render()
    for client in CLIENTS:
        assert f"{client.name}<br>{client.version}" in page
        assert all(f"({reason})" in page for reason in client.lacks.values())
