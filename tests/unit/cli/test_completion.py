"""Completion scripts and the reference say what the parsers say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.cli.completion import SHELLS, script
from ottla.cli.main import make_parser
from ottla.cli.reference import commands
from ottla.cli.syntax import Syntax, syntax_of

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


@pytest.fixture(scope="module")
def syntax() -> Syntax:
    return syntax_of(make_parser())


def bash_completes(syntax: Syntax, line: str) -> set[str]:
    """What bash offers for the last word of a line; a line that ends with a space has an empty last word."""
    words = line.split(" ")
    program = (
        f"{script('bash', syntax)}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\n"
        f'COMP_CWORD={len(words) - 1}\n_ottla\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ottla top", {"topics"}),
        ("ottla co", {"consume", "configs", "completion"}),
        ("ottla topics ", {"create", "list", "describe", "alter", "delete", "delete-records", "-h", "--help"}),
        ("ottla topics create name --repl", {"--replication-factor", "--replica-assignment"}),
        ("ottla produce t --compression ", {"none", "gzip", "snappy", "lz4", "zstd"}),
        ("ottla produce t --compression z", {"zstd"}),
        ("ottla topics create --config ", set()),
        ("ottla completion ", {"bash", "zsh", "fish", "-h", "--help"}),
        ("ottla consume topics --iso", {"--isolation"}),
    ],
)
def test_bash_completes(syntax, line, words):
    assert bash_completes(syntax, line) == words


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ottla consume ", {"topics-a", "topics-b"}),
        ("ottla consume topics-a ", {"topics-a", "topics-b"}),
        ("ottla groups describe groups-b", {"groups-b"}),
        ("ottla configs describe --topic ", {"topics-a", "topics-b"}),
        ("ottla consume -b there:1 ", {"topics-a", "topics-b", "-b", "there:1"}),
        ("ottla topics delete --if", {"--if-exists"}),
    ],
)
def test_bash_completes_names_that_the_broker_has(syntax, line, words, tmp_path, monkeypatch):
    program = tmp_path / "ottla"
    program.write_text('#!/bin/sh\n[ "$2 $3 $4" = "list --timeout 2" ] && echo "$1-a $1-b $5 $6"\necho noise >&2\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bash_completes(syntax, line) == words


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_without_a_broker_bash_completes_what_it_knows(syntax, tmp_path, monkeypatch):
    program = tmp_path / "ottla"
    program.write_text("#!/bin/sh\necho no broker >&2\nexit 5\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert bash_completes(syntax, "ottla topics delete ") >= {"--if-exists"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_every_command_is_in_the_script(syntax, shell):
    text = script(shell, syntax)
    for command in syntax.walk():
        assert command.path in text
        for option in command.options:
            for flag in option.flags:
                spelled = f" {'-l' if flag.startswith('--') else '-s'} {flag.lstrip('-')} " if shell == "fish" else flag
                assert spelled in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_the_script(syntax, shell, ottla):
    result = ottla("completion", shell)
    assert (result.code, result.err) == (0, "")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    done = subprocess.run([shell, "-n"], input=result.out, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_reference_is_what_the_parsers_say():
    assert REFERENCE.read_text() == commands(), "run: python -m ottla.cli.reference > docs/reference/commands.md"
