"""The command line as a whole: help, versions, exit codes and the words of its errors."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.main import COMMANDS, INTERRUPTED, load, main


def test_the_table_says_of_each_command_what_it_says_itself():
    for name, (_, text) in COMMANDS.items():
        assert load(name).help == text


@pytest.mark.parametrize("arguments", [(), ("topics",)])
def test_a_command_alone_shows_its_help(ottla, arguments):
    alone = ottla(*arguments)
    assert (alone.code, alone.err) == (ExitCode.OK, "")
    assert alone.out == ottla(*arguments, "--help").out


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


def test_every_command_loads_without_what_extras_install():
    """A command that imported such a package at its top ended in a traceback for whoever installed no extra."""
    program = """
import sys
from ottla.cli.main import COMMANDS, load

for name in sys.argv[1:]:
    sys.modules[name] = None  # an import of it fails
for name in COMMANDS:
    load(name)
"""
    extras = ("kazoo", "pyspark", "pyarrow", "fastavro", "jsonschema", "google.protobuf", "cryptography", "deltalake")
    done = subprocess.run([sys.executable, "-c", program, *extras], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_of_all_loads_none():
    program = "import sys; from ottla.cli.main import main; main(['--help'])"
    shown = f"try:\n    {program}\nfinally:\n    print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert "'ottla.cli.main'" in done.stdout
    for other in ("ottla.cli.remote", "ottla.cli.topics", "asyncio"):
        assert f"'{other}'" not in done.stdout


def test_an_interrupt_while_a_command_is_imported_is_no_traceback(monkeypatch, capsys):
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.main.import_module", interrupted)
    assert main(["topics", "list"]) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_at_the_very_beginning_is_no_traceback():
    program = """\
import builtins, sys
from ottla.__main__ import main
imported = builtins.__import__
def interrupted(name, *rest, **more):
    if name.startswith("ottla.cli"):
        raise KeyboardInterrupt
    return imported(name, *rest, **more)
builtins.__import__ = interrupted
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_the_command_does_not_warn_that_the_core_takes_the_lock_of_a_free_threaded_python():
    program = """
import sys, warnings
from unittest.mock import patch
from ottla.__main__ import main

def warn():
    warnings.warn("The global interpreter lock (GIL) has been enabled to load module 'x'", RuntimeWarning)
    return 0

with patch("ottla.cli.main.main", warn):
    sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_is_one_line(unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ottla", "completion", "bash"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "ottla: the output cannot be written: No space left on device\n"
    assert done.returncode == ExitCode.UNEXPECTED


def test_a_command_without_standard_output_works():
    command = f"exec {sys.executable} -m ottla --version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("serve", "--data", "{file}", "--listen", "127.0.0.1:0"), "log.dirs: {file} is not a directory; name"),
        (("serve", "--data", "{file}/below", "--listen", "127.0.0.1:0"), "log.dirs: {file} is not a directory; name"),
        (("up", "--data", "{file}"), "argument --data: {file} is not a directory"),
        (("down", "--data", "{file}"), "argument --data: {file} is not a directory"),
        (("certs", "create", "{file}"), "{file} is not a directory"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_a_directory_that_is_a_file_is_one_error(ottla, command, words, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    result = ottla(*(part.format(file=file) for part in command))
    assert result.code == ExitCode.USAGE
    assert words.format(file=file) in result.err
    assert result.err.count("\n") == 1


def test_a_file_that_cannot_be_used_is_named(ottla, tmp_path: Path):
    result = ottla("produce", "t", tmp_path / "nothing")
    assert result.code == ExitCode.NOT_FOUND
    assert result.err == f"ottla: {tmp_path / 'nothing'}: No such file or directory\n"


def test_the_version_is_that_of_the_package(ottla):
    assert ottla("--version").out == f"ottla {version('ottla')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dump-logs",), "unknown command: 'dump-logs'; did you mean `ottla dump-log`?"),
        (("xyzzy",), "unknown command: 'xyzzy'; try ottla --help"),
        (("topics", "lst"), "unknown action: 'lst'; did you mean `ottla topics list`?"),
        (("topics", "list", "--jsn"), "unknown option: --jsn; did you mean `--json`?"),
        (("serve", "--prt", "1"), "unknown option: --prt; try ottla serve --help"),
        (("topics", "list", "--bootstrap-servers", "x"), "--bootstrap-servers; did you mean `--bootstrap-server`?"),
        (("--cluster", "home", "topics", "list"), "unknown option: --cluster: options of a command follow it"),
        (("--versoin",), "unknown option: --versoin; did you mean `--version`?"),
        (("topics", "list", "orders"), "unexpected argument: 'orders'; try ottla topics list --help"),
        (("produce", "t", "--compression", "zst"), "invalid choice: 'zst'; did you mean `zstd`?"),
        (("dump-log",), "required: FILE; try ottla dump-log --help"),
        (("dump-log", "--depth", "x"), "unknown option: --depth; did you mean `--deep`?"),
        (("dump-log", "--from-offset", "soon", "x"), "must be a whole number, not 'soon'"),
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
