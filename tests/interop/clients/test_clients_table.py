"""The page of clients says what the matrix has: the clients in their versions, the features, and what is lacking."""

from __future__ import annotations

import pytest

from ottla.testing.client_table import complete_table
from ottla.testing.clients import CLIENTS, FEATURES, SECURITY_FEATURES


def test_the_page_of_clients_is_what_a_run_without_failures_writes(pytestconfig):
    if pytestconfig.getoption("--write-client-table", default=False):
        pytest.skip("the page is being written")
    page = pytestconfig.rootpath / "docs" / "reference" / "clients.md"
    assert page.read_text() == complete_table().render(), "pytest tests/interop/clients --write-client-table"


def test_what_a_client_lacks_is_a_feature_that_others_have():
    for client in CLIENTS:
        assert set(client.lacks) <= {*FEATURES, *SECURITY_FEATURES}
    for feature in (*FEATURES, *SECURITY_FEATURES):
        assert any(feature not in client.lacks for client in CLIENTS)


def test_each_driver_runs_the_version_that_the_table_pins(client, driver):
    if client.name == "kcat":
        pytest.skip("kcat is the system's, in whatever version that is")
    assert driver.do("hello") == {"version": client.version}
