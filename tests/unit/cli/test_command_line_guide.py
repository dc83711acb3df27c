"""The guides to the command line and to clusters show commands that exist, and every exit code."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.formats import compile_format
from ottla.cli.main import make_parser
from ottla.cli.syntax import syntax_of

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
GUIDE = (GUIDES / "command-line.md").read_text()
CLUSTER_GUIDE = (GUIDES / "cluster.md").read_text()
SHELL = [
    line
    for guide in (GUIDE, CLUSTER_GUIDE)
    for block in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    for line in block.splitlines()
]


def commands() -> list[str]:
    """Every `ottla …` of the guides, without what a shell does around it."""
    parts = [part.strip() for line in SHELL for part in re.split(r" \| |#", line)]
    return [re.split(r" [<>] ", part)[0] for part in parts if part.startswith("ottla ")]


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return make_parser()


def test_the_guide_shows_every_command(parser: argparse.ArgumentParser):
    for command in syntax_of(parser).walk():
        if not command.subcommands:
            assert command.path in GUIDE, f"`{command.path}` has no place in the guide"


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_guide_can_be_parsed(parser: argparse.ArgumentParser, command: str):
    options = parser.parse_args(shlex.split(command)[1:])
    if "--format" in command:
        compile_format(options.format, b"")


def test_the_example_of_an_error_is_what_is_printed(ottla):
    command, output = re.findall(r"```console\n\$ ottla (.*)\n((?:.*\n)*?)```", GUIDE)[0]
    result = ottla(*shlex.split(command))
    assert result.out + result.err == output
    assert result.code == ExitCode.UNREACHABLE


def test_every_exit_code_is_named():
    for code in ExitCode:
        assert re.search(rf"(?m)(^|· |\n){code.value} \w", GUIDE), code
