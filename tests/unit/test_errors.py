import importlib
import json
import pickle
import pkgutil
from pathlib import Path

import pytest

import ottla
from ottla.errors import (
    ApiError,
    ConfigError,
    CorruptFileError,
    DiskFullError,
    ErrorCode,
    LockHeldError,
    OttlaError,
    ProtocolError,
    RecordsError,
    StorageError,
)

PUBLIC_TABLE = Path(__file__).parents[3] / "shared" / "protocol" / "errors.json"


def test_the_table_equals_the_public_one() -> None:
    if not PUBLIC_TABLE.exists():
        pytest.skip(f"{PUBLIC_TABLE.name} with the public error table is not here")
    public = {
        entry["code"]: (
            entry["name"],
            entry.get("retriable", False),
            entry.get("refreshMetadata", False),
            entry.get("txnAbortable", False),
        )
        for entry in json.loads(PUBLIC_TABLE.read_text())
    }
    ours = {
        int(code): (code.name, code.retriable, code.refresh_metadata, code.aborts_transaction) for code in ErrorCode
    }
    assert ours == public


def test_codes_run_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


def test_whoever_asks_for_new_metadata_tries_again() -> None:
    assert all(code.retriable for code in ErrorCode if code.refresh_metadata)


def test_a_code_is_a_number_on_the_wire() -> None:
    assert ErrorCode.OFFSET_OUT_OF_RANGE == 1
    assert ErrorCode(1) is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(ValueError, match="9999"):
        ErrorCode(9999)


def test_a_code_of_a_later_version_is_an_error_that_nobody_here_knows():
    assert ErrorCode.of(1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_api_error_without_words_is_called_by_its_code() -> None:
    assert str(ApiError(ErrorCode.INVALID_REQUEST)) == "INVALID_REQUEST"
    assert ApiError(ErrorCode.INVALID_REQUEST).message == ""
    assert str(ApiError(ErrorCode.INVALID_REQUEST, "why")) == "why"


def test_a_records_error_names_the_record() -> None:
    error = RecordsError(ErrorCode.INVALID_RECORD, "no key", 3)
    assert (error.code, error.message, error.record_index) == (ErrorCode.INVALID_RECORD, "no key", 3)
    assert RecordsError(ErrorCode.INVALID_RECORD, "no key").record_index is None


def test_a_storage_error_names_the_path() -> None:
    error = CorruptFileError("/data/t-0/x.log", "is cut")
    assert str(error) == "/data/t-0/x.log: is cut"
    assert error.path == "/data/t-0/x.log"


def test_the_three_kinds_of_trouble_are_told_apart_by_type() -> None:
    kinds = (ApiError, ProtocolError, StorageError, ConfigError)
    assert all(issubclass(kind, OttlaError) for kind in kinds)
    assert not any(issubclass(one, other) for one in kinds for other in kinds if one is not other)
    assert issubclass(RecordsError, ApiError)
    assert issubclass(DiskFullError, StorageError)
    assert issubclass(CorruptFileError, StorageError)
    assert issubclass(LockHeldError, StorageError)


def errors_of_the_house() -> list[type[OttlaError]]:
    for package in ("broker", "cluster", "net", "records", "storage", "store"):
        for module in pkgutil.walk_packages([str(Path(ottla.__file__).parent / package)], f"ottla.{package}."):
            importlib.import_module(module.name)
    found, waiting = [], [OttlaError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", errors_of_the_house(), ids=lambda kind: kind.__name__)
def test_an_error_arrives_whole_from_another_process(kind: type[OttlaError]) -> None:
    """Else it arrives as a broken pool, and nobody knows what happened."""
    # Built by hand, for what its constructor takes does not matter here: only that it is not called with less.
    error = kind.__new__(kind)
    error.args = ("what happened",)
    vars(error)["path"] = "/data"
    error.add_note("and why")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (kind, error.args, vars(error))


def test_the_fields_of_an_error_survive_the_way_between_processes() -> None:
    records = pickle.loads(pickle.dumps(RecordsError(ErrorCode.INVALID_RECORD, "no key", 3)))
    assert (records.code, records.message, records.record_index) == (ErrorCode.INVALID_RECORD, "no key", 3)
    damaged = pickle.loads(pickle.dumps(CorruptFileError("/data/t-0/x.log", "is cut")))
    assert (type(damaged), damaged.path, str(damaged)) == (
        CorruptFileError,
        "/data/t-0/x.log",
        "/data/t-0/x.log: is cut",
    )
