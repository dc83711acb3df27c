"""The command line as a whole: help, versions, exit codes and the words of its errors."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.main import COMMANDS


def test_help_names_every_command_and_every_exit_code(ottla):
    result = ottla("--help")
    assert result.code == ExitCode.OK
    for command in COMMANDS:
        assert f"{command.name}  " in result.out
        assert command.help in result.out
    for code in ExitCode:
        assert f"{code.value}  {code.meaning}" in result.out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_help_of_its_own(ottla, command):
    result = ottla(command.name, "--help")
    assert result.code == ExitCode.OK
    assert command.description in result.out


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
    assert process.wait(30) == 141
    process.stderr.close()
