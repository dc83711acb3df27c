"""`ottla job`: what is refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "a", "b"], "there is no range to replay; give --from, --until or --offsets"),
        (["replay", "a", "b", "--from", "12"], "'12' is not a time"),
        (["replay", "a", "b", "--from", "@yesterday"], "'yesterday' is not a time"),
        (["replay", "a", "b", "--offsets", "0:1"], "'0:1' is not a range of offsets; write PARTITION:START-END"),
        (["replay", "a", "b", "--from", "@5", "--until", "@4"], "the range ends at 4, which is not after its start, 5"),
        (["replay", "a", "b", "--from", "@5", "--offsets", "0:1-2"], "one of time or one of offsets"),
        (["replay", "a", "b", "--offsets", "0:9-3"], "partition 0 ends at 3, which is before its start, 9"),
        (["audit"], "audit takes topics, or --segments with a directory"),
        (["audit", "a", "--segments", "b"], "audit takes topics, or --segments with a directory"),
        (["audit", "a", "--conf", "spark.x"], "'spark.x' is not NAME=VALUE; write --conf "),
        (["to-table", "a", "b", "--checkpoint", "c", "--option", "x"], "'x' is not NAME=VALUE; write --option "),
        (["mirror", "a", "--to", "b:1", "--to-config", "/nowhere", "--checkpoint", "c"], "/nowhere: No such file"),
        (["to-table", "a", "b"], "the following arguments are required: --checkpoint"),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(["job", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_table_that_is_not_there_cannot_be_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyspark")
    assert main(["job", "compact", str(tmp_path)]) == 2
    assert f"there is no Delta table at {tmp_path}" in capsys.readouterr().err
