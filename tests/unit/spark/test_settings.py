"""The settings of a session: each follows from a switch, and a switch that is off sets nothing."""

from __future__ import annotations

import logging
import os
import socket
import struct
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import ottla.spark
from ottla.spark import class_archive
from ottla.spark.class_archive import ARCHIVES_MAX, RETRY_AFTER_S, UNUSED_MAX_S
from ottla.spark.worker_python import worker_python
from ottla.testing.waiting import WAIT_S

needs_pyspark = pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed here")

SWITCHES = {
    "unix_sockets": "spark.python.unix.domain.socket.enabled",
    "file_checkpoints": "spark.sql.streaming.checkpointFileManagerClass",
    "frozen_workers": "spark.python.daemon.module",
    "filter_pushdown": "spark.sql.python.filterPushdown.enabled",
}


@pytest.mark.parametrize(("switch", "name"), SWITCHES.items())
def test_a_switch_that_is_off_sets_nothing(switch: str, name: str) -> None:
    everything = ottla.spark.settings()
    assert name in everything
    del everything[name]
    assert ottla.spark.settings(**{switch: False}) == everything


def test_the_web_pages_are_off_unless_asked_for() -> None:
    assert ottla.spark.settings()["spark.ui.enabled"] == "false"
    assert ottla.spark.settings(ui=True)["spark.ui.enabled"] == "true"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sessoin'"):
        _ = ottla.spark.sessoin


# -- the archive of classes, with a stand-in for the Spark program that makes it ---------------------------------------


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path))
    monkeypatch.setattr(class_archive, "_key", lambda: "java-17-spark-4")
    return tmp_path / "spark"


def test_an_archive_is_made_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(class_archive, "_run", lambda made: str(made.write_bytes(b"classes")))
    archive = class_archive.find_or_make()
    assert archive == cache / "java-17-spark-4.jsa"
    monkeypatch.setattr(class_archive, "_run", lambda made: pytest.fail("it is made already"))
    assert class_archive.find_or_make() == archive


def test_a_session_uses_an_archive_and_does_not_make_one(
    monkeypatch: pytest.MonkeyPatch, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(class_archive, "_run", lambda made: pytest.fail("nobody asked for it"))
    caplog.set_level(logging.INFO, logger=class_archive.__name__)
    assert class_archive.find() is None
    assert "python -m ottla.spark.class_archive" in caplog.text
    assert not cache.exists()
    cache.mkdir()
    made = cache / "java-17-spark-4.jsa"
    made.touch()
    assert class_archive.find() == made


def test_an_archive_that_is_used_stays_and_others_go_after_a_month(cache: Path) -> None:
    cache.mkdir()
    used, unused = cache / "java-17-spark-4.jsa", cache / "other.jsa"
    for path in (used, unused):
        path.touch()
        os.utime(path, (time.time() - UNUSED_MAX_S - 60,) * 2)
    assert class_archive.find() == used
    assert list(cache.iterdir()) == [used]


def test_what_could_not_be_made_is_told_and_not_tried_again_for_a_day(
    monkeypatch: pytest.MonkeyPatch, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[Path] = []

    def fail(made: Path) -> str:
        tries.append(made)
        return "no space left"

    monkeypatch.setattr(class_archive, "_run", fail)
    assert class_archive.find_or_make() is None
    failure = cache / "java-17-spark-4.failed"
    assert failure.read_text() == "no space left"
    assert str(failure) in caplog.text
    assert class_archive.find_or_make() is None
    assert len(tries) == 1
    yesterday = time.time() - RETRY_AFTER_S - 1
    os.utime(failure, (yesterday, yesterday))
    assert class_archive.find_or_make() is None
    assert len(tries) == 2


def test_a_cache_that_cannot_be_written_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "file"))
    assert class_archive.find_or_make() is None
    assert "without a class archive" in caplog.text


def test_while_another_process_makes_it_nobody_waits(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def look_again(made: Path) -> str:
        assert class_archive.find_or_make() is None
        return str(made.write_bytes(b"classes"))

    monkeypatch.setattr(class_archive, "_run", look_again)
    assert class_archive.find_or_make() is not None


def test_old_archives_go(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    cache.mkdir()
    for age in range(1, ARCHIVES_MAX + 2):
        old = cache / f"{age}.jsa"
        old.touch()
        os.utime(old, (time.time() - age * 60,) * 2)
    monkeypatch.setattr(class_archive, "_run", lambda made: str(made.write_bytes(b"classes")))
    class_archive.find_or_make()
    assert {path.name for path in cache.glob("*.jsa")} == {"java-17-spark-4.jsa", "1.jsa", "2.jsa"}


# -- the Python of workers ---------------------------------------------------------------------------------------------


@needs_pyspark
def test_workers_start_without_the_zip_file_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/of the/user")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    python = worker_python()
    program = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv[1:], sep='|')"
    monkeypatch.setenv("PYTHONPATH", "/spark/python/lib/pyspark.zip")
    said = subprocess.run([python, "-c", program, "a b"], check=True, capture_output=True, text=True).stdout
    assert said == f"/of the/user|{sys.executable}|a b\n"
    monkeypatch.setenv("PYTHONPATH", "/of the/user")
    assert worker_python() == python


@needs_pyspark
def test_another_spark_than_the_installed_one_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert worker_python() == sys.executable


@needs_pyspark
def test_no_place_for_the_script_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert worker_python() == sys.executable


WORKER = """
import os, sys, time
while not os.path.exists("loaded"):
    time.sleep(0.01)
from pyspark.worker_util import get_sock_file_to_executor
with get_sock_file_to_executor(timeout=None) as file:
    file.write(f"{sys.argv} {__name__}".encode())
"""


@needs_pyspark
@pytest.mark.parametrize("secret", [None, "of this Spark"])
def test_a_worker_connects_before_it_loads_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secret: str | None
) -> None:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    (tmp_path / "a_worker.py").write_text(WORKER)
    with socket.socket(socket.AF_UNIX if secret is None else socket.AF_INET) as spark:
        spark.bind(str(tmp_path / "spark") if secret is None else ("127.0.0.1", 0))
        spark.listen()
        spark.settimeout(WAIT_S)
        name = spark.getsockname()
        where = {"SOCK_PATH": name} if secret is None else {"PORT": str(name[1]), "SECRET": secret}
        for part, value in where.items():
            monkeypatch.setenv(f"PYTHON_WORKER_FACTORY_{part}", value)
        with subprocess.Popen([worker_python(), "-m", "a_worker", "x y"], cwd=tmp_path) as worker:
            connection, _ = spark.accept()
            connection.settimeout(WAIT_S)
            with connection, connection.makefile("rwb") as file:
                if secret is not None:
                    assert file.read(4 + len(secret)) == struct.pack("!i", len(secret)) + secret.encode()
                    file.write(b"\0\0\0\2ok")
                    file.flush()
                (tmp_path / "loaded").touch()
                assert struct.unpack("!i", file.read(4)) == (worker.pid,)
                said = file.read().decode()
    assert said == f"[{str(tmp_path / 'a_worker.py')!r}, 'x y'] __main__"
    assert worker.returncode == 0
