"""The guide to `ottla dump-log` shows what the command really prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.dump_log import describe
from ottla.cli.inspection.files import files_of
from ottla.cli.inspection.findings import ReadOptions
from ottla.cli.inspection.reader import read

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "dump-log.md").read_text()
EXAMPLES = re.findall(r"(?:<!-- flip byte (\d+) of (\S+) -->\n)?```console\n\$ ottla (.*)\n((?:.*\n)*?)```", GUIDE)


def test_the_guide_has_examples():
    assert any(flipped for flipped, *_ in EXAMPLES), "one example shows damage"
    assert not all(flipped for flipped, *_ in EXAMPLES)


@pytest.mark.parametrize(("flipped_byte", "flipped_file", "command", "output"), EXAMPLES, ids=lambda part: part[:40])
def test_an_example_prints_what_the_guide_says(
    ottla, orders: Path, monkeypatch, flipped_byte: str, flipped_file: str, command: str, output: str
):
    monkeypatch.chdir(orders.parent)
    if flipped_file:
        content = bytearray(Path(flipped_file).read_bytes())
        content[int(flipped_byte)] ^= 1
        Path(flipped_file).write_bytes(content)
    result = ottla(*shlex.split(command))
    assert result.out + result.err == output
    assert result.code == (ExitCode.DAMAGED if flipped_file else ExitCode.OK)


def test_the_guide_names_every_kind_that_json_has(orders: Path):
    (orders / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 13\n")
    kinds = {describe(finding)[0] for file in files_of(orders) for finding in read(file, ReadOptions(deep=True))}
    for kind in (*kinds, "note", "damage", "file"):
        assert f"`{kind}`" in GUIDE


def test_the_fields_of_the_jq_example_exist(ottla, orders: Path):
    (query,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    batch_line = ottla("dump-log", "--json", orders / "00000000000000000000.log").lines[1]
    for name in {"kind", "producer_id", "record_count"}:
        assert f".{name}" in query
        assert f'"{name}":' in batch_line
