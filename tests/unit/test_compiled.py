"""Where the compiled core is missing, whoever runs without it is told; whoever asked for that is not."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ottla import compiled
from ottla.cli.main import main
from ottla.spark import workers
from ottla.testing.broker import Broker

WORDS = ("compiled core is missing", "slower", "C compiler", "pip install", "OTTLA_PURE_PYTHON=1")


@pytest.fixture(params=compiled.PARTS)
def missing_part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A part of the core that was not built; which of them it is must not matter."""
    monkeypatch.delenv(compiled.PURE_PYTHON, raising=False)
    monkeypatch.setitem(sys.modules, request.param, None)  # an import of it fails
    workers._complain_once.cache_clear()
    return str(request.param)


@pytest.fixture
def pure_python(missing_part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.PURE_PYTHON, "1")


def version_shown(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(["--version"])
    return capsys.readouterr().out


def worker_logs(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a Spark worker logs in two tasks, each of which asks for a client."""
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            workers.client_for("127.0.0.1:1")
    return caplog.messages


def broker_logs(caplog: pytest.LogCaptureFixture) -> list[str]:
    with caplog.at_level(logging.WARNING), Broker():
        pass
    return caplog.messages


def is_complaint_about(part: str, text: str) -> bool:
    return part in text and all(words in text for words in WORDS)


def test_the_core_of_this_environment_was_built() -> None:
    """Not a matter of taste here: every other test that compares the two cores would be skipped."""
    if compiled.is_pure_python_asked_for():
        pytest.skip("pure Python was asked for")
    assert compiled.missing_parts() == []
    assert compiled.complaint() is None


def test_every_extension_module_is_one_of_the_parts() -> None:
    source = Path(compiled.__file__).parent
    built = {".".join(("ottla", *path.relative_to(source).with_suffix("").parts)) for path in source.rglob("*.pyx")}
    assert built == set(compiled.PARTS)


def test_a_missing_core_is_told_with_the_version(missing_part: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = version_shown(capsys).splitlines()
    assert first.startswith("ottla ")
    assert is_complaint_about(missing_part, second)


def test_a_missing_core_is_told_when_a_broker_starts(missing_part: str, caplog: pytest.LogCaptureFixture) -> None:
    [text] = broker_logs(caplog)
    assert is_complaint_about(missing_part, text)


def test_a_missing_core_is_told_once_by_a_spark_worker(missing_part: str, caplog: pytest.LogCaptureFixture) -> None:
    [text] = worker_logs(caplog)
    assert is_complaint_about(missing_part, text)


def test_a_core_that_is_there_and_cannot_be_loaded_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined symbol: of_another_time")

    monkeypatch.delenv(compiled.PURE_PYTHON, raising=False)
    monkeypatch.setattr(compiled, "import_module", fail)
    assert "ottla.records._native: undefined symbol: of_another_time" in (compiled.complaint() or "")


def test_a_query_with_ottla_from_a_zip_file_is_rejected_with_what_to_send_instead(tmp_path: Path) -> None:
    """As `spark-submit --py-files ottla.zip` has it: what a worker logs nobody would read."""
    pytest.importorskip("pyspark")
    source = Path(compiled.__file__).parent
    archive = tmp_path / "ottla.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in source.rglob("*.py"):
            file.write(path, Path("ottla") / path.relative_to(source))
    program = "from ottla.spark.datasource import OttlaDataSource; OttlaDataSource({}); print('taken')"

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != compiled.PURE_PYTHON}
        environment = {**clean, "PYTHONPATH": str(archive), **environment}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)

    rejected = run().stderr
    assert f"ConfigError: ottla was loaded from {archive}, and Python loads no compiled modules from a zip" in rejected
    assert "--archives" in rejected
    assert run(OTTLA_PURE_PYTHON="1").stdout == "taken\n"


@pytest.mark.usefixtures("pure_python")
def test_who_asks_for_pure_python_hears_of_it_with_the_version_only(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert version_shown(capsys).splitlines()[1] == "without the compiled core: OTTLA_PURE_PYTHON is set"
    assert broker_logs(caplog) == []
    assert worker_logs(caplog) == []


WITHOUT_CODECS = """
import sys
for name in ("lz4", "lz4.frame", "zstandard"):
    sys.modules[name] = None
from ottla.records import batch
from ottla.records.layout import Compression
for codec in (Compression.LZ4, Compression.ZSTD):
    made = batch.build([b"k"], [b"v" * 1000], [1], compression=codec)
    print([bytes(value) for value in batch.decode(made).values] == [b"v" * 1000])
"""


def test_without_a_codec_library_records_are_compressed_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CODECS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")


def test_a_missing_codec_library_is_named_by_the_version_and_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled.codec_complaint() is None
    monkeypatch.setattr(compiled, "find_spec", lambda name: None if name == "lz4" else object())
    assert "lz4 cannot be imported, and cramjam, which takes longer" in version_shown(capsys)
    assert [text for text in broker_logs(caplog) if "pip install lz4`" in text]
