"""The command line as a whole: help, versions, exit codes and the words of its errors."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.main import COMMANDS, load


def test_help_names_every_command_and_every_exit_code(ottla):
    result = ottla("--help")
    assert result.code == ExitCode.OK
    for command in map(load, COMMANDS):
        assert f"    {command.name}" in result.out
        assert command.help in result.out
    for code in ExitCode:
        assert f"{code.value}  {code.meaning}" in result.out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_of_its_own(ottla, name):
    result = ottla(name, "--help")
    assert result.code == ExitCode.OK
    assert load(name).description in result.out


def test_a_command_loads_no_other():
    program = "import sys; from ottla.cli.main import main; main(['completion', '--help'])"
    shown = f"try:\n    {program}\nfinally:\n    print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert "'ottla.cli.completion'" in done.stdout
    for other in ("ottla.protocol.versions", "ottla.storage.log", "ottla.cli.topics", "asyncio"):
        assert f"'{other}'" not in done.stdout


def test_the_version_is_that_of_the_package(ottla):
    assert ottla("--version").out == f"ottla {version('ottla')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "required: COMMAND; try ottla --help"),
        (("dump-logs",), "invalid choice: 'dump-logs'"),
        (("dump-log",), "required: FILE; try ottla dump-log --help"),
        (("dump-log", "--depth", "x"), "unrecognized arguments: --depth"),
        (("dump-log", "--from-offset", "soon", "x"), "invalid int value: 'soon'"),
    ],
)
def test_bad_usage_is_one_line_that_says_what_to_try(ottla, arguments, words):
    result = ottla(*arguments)
    assert result.code == ExitCode.USAGE
    assert result.out == ""
    assert result.err.startswith("ottla: ")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_a_reader_that_goes_away_ends_the_command_quietly(orders: Path):
    many = [str(orders)] * 200  # more than a pipe holds
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "dump-log", *many], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(str(orders).encode())
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(120) == 141
    process.stderr.close()
