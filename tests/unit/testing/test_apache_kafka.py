"""Where Apache Kafka comes from, without Maven and without Java: both are stand-ins here."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ottla.runtime.cache import cache_directory
from ottla.testing import apache_kafka, maven
from ottla.testing.apache_kafka import ApacheKafka, ApacheKafkaError, missing_programs
from ottla.testing.maven import Artifact, MavenError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def stand_in(monkeypatch: pytest.MonkeyPatch, directory: Path, program: str, script: str) -> None:
    """Puts a shell script of that name in front of the real program."""
    directory.mkdir(exist_ok=True)
    path = directory / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_missing_programs_are_named(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_programs() == ["java", "mvn"]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("OTTLA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "ottla"
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"


def test_maven_is_asked_once(monkeypatch, tmp_path: Path, cache: Path):
    script = (
        f'echo call >> {tmp_path}/calls\nfor a; do case "$a" in -DoutputDirectory=*) mkdir "${{a#*=}}";; esac; done'
    )
    stand_in(monkeypatch, tmp_path / "bin", "mvn", script)
    first, second = ApacheKafka.resolve("3.9.1"), ApacheKafka.resolve("3.9.1")
    assert first == second
    assert first.jars == cache / "maven" / "kafka-3.9.1"
    assert (tmp_path / "calls").read_text() == "call\n"


def test_a_failed_download_says_why_and_leaves_nothing_behind(monkeypatch, tmp_path: Path, cache: Path):
    stand_in(monkeypatch, tmp_path / "bin", "mvn", "echo no route to host; exit 1")
    with pytest.raises(MavenError, match="no route to host"):
        ApacheKafka.resolve("3.9.1")
    assert not (cache / "maven" / "kafka-3.9.1").exists()


def test_what_is_asked_for_alone_comes_alone(monkeypatch, tmp_path: Path, cache: Path):
    script = f'cp "$4" {tmp_path}/pom\nfor a; do case "$a" in -DoutputDirectory=*) mkdir "${{a#*=}}";; esac; done'
    stand_in(monkeypatch, tmp_path / "bin", "mvn", script)
    maven.jars("alone", [Artifact("org.example", "thing", "1.0")], transitive=False)
    assert "<exclusion><groupId>*</groupId>" in (tmp_path / "pom").read_text()
    maven.jars("with-friends", [Artifact("org.example", "thing", "1.0")])
    assert "<exclusion>" not in (tmp_path / "pom").read_text()


def test_what_the_dump_tool_says_of_damage_is_found_on_both_its_outputs(monkeypatch, tmp_path: Path):
    script = "echo 'baseOffset: 0 isvalid: false'\necho 'baseOffset: 1 isvalid: true'\necho 'Mismatches in :x' >&2"
    stand_in(monkeypatch, tmp_path / "bin", "java", script)
    dump = ApacheKafka("3.9.1", tmp_path).dump_log([tmp_path / "x.log"])
    assert dump.complaints == ["baseOffset: 0 isvalid: false", "Mismatches in :x"]
    assert len(dump.lines) == 2


def test_a_broker_that_does_not_start_tells_its_last_words(monkeypatch, tmp_path: Path):
    script = 'case "$*" in *StorageTool*) exit 0;; esac\necho the port is taken; exit 1'
    stand_in(monkeypatch, tmp_path / "bin", "java", script)
    broker = apache_kafka.KafkaBroker(ApacheKafka("3.9.1", tmp_path), tmp_path / "broker")
    with pytest.raises(ApacheKafkaError, match="the port is taken"):
        broker.start()


@pytest.mark.parametrize(
    ("profile", "heap", "collector"),
    [(apache_kafka.SHORT_RUN, "-Xmx512m", "-XX:+UseSerialGC"), (apache_kafka.AS_ITS_SCRIPT, "-Xmx1G", "-XX:+UseG1GC")],
)
def test_a_broker_runs_in_the_profile_that_is_asked_for(monkeypatch, tmp_path: Path, profile, heap, collector):
    script = (
        f'case "$*" in *StorageTool*) exit 0;; esac\necho "$@" > {tmp_path}/seen\necho Kafka Server started; sleep 60'
    )
    stand_in(monkeypatch, tmp_path / "bin", "java", script)
    broker = apache_kafka.KafkaBroker(ApacheKafka("4.3.1", tmp_path), tmp_path / "broker", profile=profile)
    broker.start()
    broker.kill()
    flags = (tmp_path / "seen").read_text().split()
    assert {heap, collector} <= set(flags)
    assert ("-XX:TieredStopAtLevel=1" in flags) == (profile is apache_kafka.SHORT_RUN)
    assert not any("{" in flag for flag in flags)
