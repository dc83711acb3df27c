"""Jars from Maven by coordinates, kept in the cache; a lock makes parallel test workers fetch them once."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.runtime.cache import cache_directory
from ottla.testing.lock_file import locked

COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
TIMEOUT_S: Final = 600
NOTHING_ELSE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class MavenError(OttlaError):
    """Maven did not bring what was asked for; the message carries its own last words."""


class Artifact(NamedTuple):
    group: str
    name: str
    version: str


def jars(name: str, artifacts: Sequence[Artifact], *, transitive: bool = True) -> Path:
    """A directory of that name in the cache with the jars of the artifacts.

    `transitive`: with everything they need to run. Without it they are all that is fetched, and no repository that
    their own descriptions name is asked.
    """
    home = cache_directory() / "maven"
    home.mkdir(parents=True, exist_ok=True)
    directory = home / name
    with locked(home / f"{name}.lock"):
        if not directory.is_dir():
            _copy(name, artifacts, directory, "" if transitive else NOTHING_ELSE)
    return directory


def _copy(name: str, artifacts: Sequence[Artifact], directory: Path, exclusions: str) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(artifacts, exclusions))
        copied = Path(scratch) / "jars"
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", pom, COPY_DEPENDENCIES, "-DincludeScope=runtime", f"-DoutputDirectory={copied}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode != 0:
            raise MavenError(f"Maven could not bring {name}; is its repository within reach? {done.stdout[-2000:]}")
        copied.rename(directory)


def _pom(artifacts: Sequence[Artifact], exclusions: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{each.group}</groupId><artifactId>{each.name}</artifactId>"
        f"<version>{each.version}</version>{exclusions}</dependency>"
        for each in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>ottla</groupId><artifactId>interop</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
