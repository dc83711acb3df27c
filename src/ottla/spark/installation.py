"""Is everything here that Spark needs? Asked before Spark starts, because its own complaints come late and are long."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.errors import ConfigError

JAVA_OLDEST: Final = 17
# A module of Java that Spark asks for at start-up; Java runtimes that were cut down lack it.
VECTOR_MODULE: Final = "jdk.incubator.vector"
ADVICE: Final = (
    "Install one (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one that is installed."
)
VERSION_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Java:
    program: Path
    version: str
    lacks_vector_module: bool = False

    @property
    def feature_version(self) -> int:
        """17 of `17.0.15`, 8 of `1.8.0_392`."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def check_installation() -> Java:
    """The Java that Spark will run on; a ConfigError says what is missing and how to get it."""
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigError(f"{module} is not installed: pip install 'ottla[spark]' installs what Spark needs")
    return find_java()


def find_java() -> Java:
    program = java_program()
    java = _by_release_file(program) or _by_asking(program)
    if java.feature_version < JAVA_OLDEST:
        raise ConfigError(f"{program} is Java {java.version}, and Spark needs {JAVA_OLDEST} or newer. {ADVICE}")
    if java.lacks_vector_module:
        raise ConfigError(f"{program} lacks the module {VECTOR_MODULE}, without which Spark does not start. {ADVICE}")
    return java


def java_program() -> Path:
    """The one that Spark's scripts would take."""
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise ConfigError(f"JAVA_HOME is {home}, and there is no {program}. {ADVICE}")
        return program
    found = shutil.which("java")
    if found is None:
        raise ConfigError(f"Spark needs Java, and there is no java on the path. {ADVICE}")
    return Path(found)


def _by_release_file(program: Path) -> Java | None:
    """From the file that a Java installation carries; reading it takes no time."""
    try:
        text = (program.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    fields = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    version = fields.get("JAVA_VERSION")
    if version is None or not re.match(r"\d", version):
        return None
    modules = fields.get("MODULES", "").split()
    return Java(program, version, lacks_vector_module=bool(modules) and VECTOR_MODULE not in modules)


def _by_asking(program: Path) -> Java:
    try:
        done = subprocess.run(
            [program, "-version"], check=False, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} does not run: {error}. {ADVICE}") from error
    found = re.search(r'version "(\d[^"]*)"', done.stderr + done.stdout)
    if found is None:
        raise ConfigError(f"{program} does not report its version: {done.stderr.strip()[:200]!r}. {ADVICE}")
    return Java(program, found[1])
