"""A pipeline on disk: a directory with `spark-pipeline.yaml` (Spark Declarative Pipelines), or one Python program.

    target = find(Path("shop"))

The specification is Spark's own, with its fields and their meaning; nothing is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.spark.pipelines import template

SPEC_NAMES: Final = ("spark-pipeline.yaml", "spark-pipeline.yml")
FIELDS: Final = frozenset({"name", "storage", "catalog", "database", "schema", "configuration", "libraries"})
REQUIRED: Final = ("name", "storage")
# What pyspark.pipelines imports and `pyspark` alone does not bring.
MODULES: Final = ("pyspark", "pyarrow", "yaml", "grpc", "grpc_status", "pandas")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Project:
    """A declared pipeline."""

    name: str
    path: Path  # of the specification
    storage: str
    catalog: str | None = None
    database: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)
    globs: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        return self.path.parent

    @property
    def files(self) -> list[Path]:
        """The files with transformations, as Spark finds them."""
        found = [path for pattern in self.globs for path in self.directory.glob(_whole(pattern))]
        return sorted({path for path in found if path.is_file() and "__pycache__" not in path.parts})


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program that starts streaming queries by itself."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem


Target = Project | Program


def find(path: Path) -> Target:
    """What is at a path: a program, a specification, or the directory of one; below a project, the project."""
    if path.suffix == ".py":
        if not path.is_file():
            raise ConfigError(f"there is no program {path}")
        return Program(path.resolve())
    if path.is_file():
        return load(path)
    if not path.is_dir():
        raise ConfigError(f"there is no {path}: give a directory with {SPEC_NAMES[0]}, or a Python program")
    for directory in (path.resolve(), *path.resolve().parents):
        found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
        if len(found) > 1:
            raise ConfigError(f"{directory} has both {' and '.join(SPEC_NAMES)}: remove one of them")
        if found:
            return load(found[0])
    raise ConfigError(
        f"there is no {SPEC_NAMES[0]} in {path} or above it: `ottla pipeline init NAME` makes a project; a plain "
        "program is given by its path"
    )


def load(path: Path) -> Project:
    """The specification in a file; a ConfigError says which field is wrong."""
    check_installed()
    yaml: Any = import_module("yaml")
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    return project_of(loaded, path)


def project_of(loaded: Any, path: Path) -> Project:
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} is empty: give it a name, a storage and libraries")
    if unknown := sorted(map(str, loaded.keys() - FIELDS)):
        raise ConfigError(f"{path} has the unknown field {unknown[0]}; there are {', '.join(sorted(FIELDS))}")
    for name in REQUIRED:
        if not isinstance(loaded.get(name), str):
            raise ConfigError(f"{path} needs a {name}, as text")
    configuration = loaded.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ConfigError(f"{path}: configuration is names with values")
    for key, value in configuration.items():
        if not isinstance(value, str):
            raise ConfigError(f'{path}: {key} in configuration is to be text: write "{value}" in quotes')
    return Project(
        name=loaded["name"],
        path=path.resolve(),
        storage=loaded["storage"],
        catalog=loaded.get("catalog"),
        database=loaded.get("database", loaded.get("schema")),
        configuration=configuration,
        globs=tuple(_globs(loaded.get("libraries") or [], path)),
    )


def _globs(libraries: Any, path: Path) -> list[str]:
    try:
        patterns = [str(each["glob"]["include"]) for each in libraries]
    except (TypeError, KeyError) as error:
        raise ConfigError(f"{path}: libraries is a list of `glob: {{include: transformations/**}}`") from error
    for pattern in patterns:
        if any(sign in pattern.removesuffix("/**") for sign in "*?["):
            raise ConfigError(f"{path}: {pattern} is neither a file nor a directory with /** at its end")
    return patterns


def _whole(pattern: str) -> str:
    return f"{pattern}/*" if pattern.endswith("/**") else pattern


def check_installed() -> None:
    """A ConfigError that names what Spark Declarative Pipelines lack."""
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"declared pipelines need {', '.join(missing)}, not installed: pip install 'ottla[pipelines]'; a "
            "plain program that starts streaming queries needs ottla[spark] only"
        )


def init(name: str, parent: Path) -> Path:
    """Lays out a project that runs: a specification, transformations in Python and SQL, and a test."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a pipeline: letters, digits, - and _, a letter first")
    directory = parent.resolve() / name
    if directory.exists():
        raise ConfigError(f"{directory} exists: choose another name, or remove it")
    for path, text in template.files(name, f"file://{directory}/storage").items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return directory
