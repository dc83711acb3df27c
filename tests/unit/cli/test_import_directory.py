"""`ottla import` of what is no directory of Apache Kafka: refused in words, and left as it was."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.command import ExitCode


def test_a_directory_that_is_none_of_kafka_is_left_as_it_was(ottla, tmp_path: Path):
    result = ottla("import", tmp_path, "--yes")
    assert result.code == ExitCode.USAGE
    assert "has no meta.properties: name a log directory" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_named_twice_is_not_taken_for_one_in_use(ottla, tmp_path: Path):
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    result = ottla("import", tmp_path, tmp_path / ".." / tmp_path.name)
    assert result.code == ExitCode.USAGE
    assert result.err == "ottla: a directory is named twice; name each of log.dirs once\n"


def test_a_name_that_is_no_directory_is_not_found(ottla, tmp_path: Path):
    assert ottla("import", tmp_path / "nowhere").code == ExitCode.NOT_FOUND
    assert ottla("backup", tmp_path / "nowhere", "--to", tmp_path / "backup").code == ExitCode.NOT_FOUND
