"""What Spark needs is looked for before Spark starts, and what is missing is named with the way to get it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.spark import installation
from ottla.spark.installation import Java, check_installation, find_java


def java_home(directory: Path, *, release: str | None = None, says: str = "exit 1") -> Path:
    """A stand-in for an installation of Java, with a release file or with something to say for itself."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (directory / "release").write_text(release)
    return directory


def test_the_version_stands_in_the_release_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = java_home(tmp_path, release='JAVA_VERSION="21.0.2"\nMODULES="java.base jdk.incubator.vector"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home / "bin" / "java", "21.0.2")


def test_a_java_without_that_file_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = java_home(tmp_path, says="""echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().version == "17.0.15"


@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("11.0.2", 11)])
def test_old_and_new_version_numbers_are_understood(version: str, feature: int) -> None:
    assert Java(Path("java"), version).feature_version == feature


@pytest.mark.parametrize(
    ("release", "complaint"),
    [
        ('JAVA_VERSION="11.0.22"\n', "is Java 11.0.22, and Spark needs 17 or newer"),
        ('JAVA_VERSION="17.0.1"\nMODULES="java.base java.sql"\n', "lacks the module jdk.incubator.vector"),
    ],
)
def test_a_java_that_spark_cannot_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, complaint: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, release=release)))
    with pytest.raises(ConfigError, match=complaint) as caught:
        find_java()
    assert "openjdk-17" in str(caught.value)


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no java on the path.*openjdk-17"):
        find_java()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*nowhere"):
        find_java()


def test_a_java_that_says_nothing_useful_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path, says="echo cannot load libjvm >&2; exit 1")))
    with pytest.raises(ConfigError, match="cannot load libjvm"):
        find_java()


def test_a_missing_package_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[spark\]'"):
        check_installation()
