"""Errors by what to do about them, with a class for each code."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from ottla.client import errors
from ottla.client.error_codes import NotLeaderOrFollowerError, error_of_code
from ottla.errors import ApiError, ErrorCode

TABLE = Path(__file__).parents[4] / "shared" / "protocol" / "clients" / "client_errors.json"
GROUPS = {
    "retriable": errors.RetriableError,
    "refresh_retriable": errors.RetriableError,
    "transaction_abortable": errors.AbortableError,
    "application_recoverable": errors.RestartError,
    "invalid_configuration": errors.ConfigurationError,
    "none": errors.FatalError,
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_a_code_has_a_class_of_its_own(code):
    error = error_of_code(code, "orders-0")
    assert error.code is code
    assert type(error).CODE is code
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code) == (type(error), "orders-0", code)


def test_classes_are_grouped_as_kafka_groups_them():
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} with the groups of errors is not here")
    for entry in json.loads(TABLE.read_text())["errors"]:
        if entry["code"]:
            assert isinstance(error_of_code(ErrorCode(entry["code"])), GROUPS[entry["kip_1050_group"]]), entry["name"]


def test_who_catches_an_api_error_catches_them_all():
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        raise NotLeaderOrFollowerError()
