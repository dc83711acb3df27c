"""What runs a broker for years, in packaging/: its command lines and settings are ones that we have."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.main import make_parser
from ottla.config.broker import BrokerConfig
from ottla.config.properties import Properties, parse_properties

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "ottla.service"


def values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def container(instruction: str) -> list[str]:
    text = (PACKAGING / "Containerfile").read_text()
    return re.findall(rf"^{instruction} (.*)$", text, re.MULTILINE)


def test_the_unit_runs_a_command_that_exists() -> None:
    (command,) = values("ExecStart")
    program, *arguments = shlex.split(command)
    assert program == "/opt/ottla/bin/ottla"
    options = make_parser(arguments[:1]).parse_args(arguments)  # a wrong one ends in SystemExit
    assert options.properties == "/etc/ottla/server.properties"


def test_the_unit_tries_again_unless_that_is_useless() -> None:
    assert values("Restart") == ["on-failure"]
    assert values("RestartPreventExitStatus") == [f"{ExitCode.USAGE:d} {ExitCode.NOT_FOUND:d}"]


def test_the_settings_are_known_and_the_data_is_where_the_unit_may_write() -> None:
    path = PACKAGING / "server.properties"
    config, warnings = BrokerConfig.load(parse_properties(path.read_text(), str(path)))
    assert warnings == []
    assert values("ProtectSystem") == ["strict"]
    assert [f"/var/lib/{name}" for name in values("StateDirectory")] == list(config.log_directories)


def test_the_user_of_the_unit_is_the_one_that_is_made() -> None:
    users = re.findall(r"^u (\S+)", (PACKAGING / "ottla.sysusers").read_text(), re.MULTILINE)
    assert values("User") == users


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ottla/bin/ottla", sys.executable))  # it has to exist
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_container_runs_a_command_that_exists() -> None:
    (entry,), (command,) = container("ENTRYPOINT"), container("CMD")
    assert json.loads(entry) == ["ottla"]
    arguments = json.loads(command)
    options = make_parser(arguments[:1]).parse_args(arguments)
    given = dict(text.split("=", 1) for text in options.set)
    config, warnings = BrokerConfig.load(
        Properties({}).overridden(
            {"listeners": f"PLAINTEXT://{options.listen}", "log.dirs": options.data, **given}, "the container file"
        )
    )
    assert warnings == []
    assert list(config.log_directories) == container("VOLUME")


def test_what_the_container_copies_exists_and_is_sent_to_the_build() -> None:
    copied = [name for line in container("COPY") if not line.startswith("--") for name in line.split()[:-1]]
    sent = re.findall(r"^!(.*)$", (PACKAGING / "Containerfile.dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(sent)
    assert [name for name in copied if not (PACKAGING.parent / name).exists()] == []
