"""What a declared pipeline reads and writes, found by running its definitions without Spark.

Spark itself runs the functions of a pipeline to learn what they read; here they run with stand-ins that only note the
sources. What a function computes from them is not looked at: types and columns are checked by Spark, in a dry run.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from ottla.errors import ConfigError
from ottla.spark.compat import CONNECT_VARIABLE
from ottla.spark.options import columns_of
from ottla.spark.pipelines.project import Project

FORMAT: Final = "ottla"


@dataclass(frozen=True, slots=True)
class Use:
    """A source or a sink of topics, and where it stands."""

    where: str
    is_sink: bool
    is_streaming: bool
    options: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class Definitions:
    """What was found. `not_followed`: functions that need more of Spark than there is here, with the reason."""

    uses: list[Use] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    not_followed: dict[str, str] = field(default_factory=dict)


def definitions_of(project: Project) -> Definitions:
    """A ConfigError for a file that cannot be loaded."""
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context

    found = Definitions()
    flows: list[Any] = []

    class Registry(GraphElementRegistry):
        def register_output(self, output: Any) -> None:
            found.outputs.append(output.name)
            if getattr(output, "format", None) == FORMAT and hasattr(output, "options"):
                found.uses.append(Use(f"sink {output.name}", True, True, dict(output.options)))

        def register_flow(self, flow: Any) -> None:
            flows.append(flow)

        def register_auto_cdc_flow(self, flow: Any) -> None:
            pass  # it has no function of its own: it reads what another one has made

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            pass  # only Spark reads SQL

    session = _Session(found.uses)
    with _stand_in(session, project.directory):
        with graph_element_registration_context(Registry()):
            for path in project.files:
                _load(path, session)
        for flow in flows:
            session.where = f"flow {flow.name}"
            try:
                flow.func()
            except Exception as error:  # whatever it is: the function was made for Spark, and this is not
                found.not_followed[flow.name] = f"{type(error).__name__}: {error}"
    return found


def _load(path: Path, session: _Session) -> None:
    if path.suffix == ".sql":
        if not path.read_text(encoding="utf-8").strip():
            raise ConfigError(f"{path} is empty: Spark wants a statement in it")
        return
    if path.suffix != ".py":
        raise ConfigError(f"{path} is neither Python nor SQL: name the files more closely in libraries")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = session
    session.where = str(path)
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def _stand_in(session: _Session, directory: Path) -> Iterator[None]:
    """As long as definitions are loaded: in their directory, and with our session as the active one."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    before = os.getcwd()
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    try:
        with (
            patch.dict(os.environ, {CONNECT_VARIABLE: "1"}),
            patch.object(SparkSession, "active", lambda: session),
            patch.object(SparkSession, "getActiveSession", lambda: session),
            patch.object(RemoteSession, "active", lambda: session),
            patch.object(RemoteSession, "getActiveSession", lambda: session),
        ):
            yield
    finally:
        sys.path.remove(str(directory))
        os.chdir(before)


class _Anything:
    """Stands in for what Spark would return: every attribute and call of it is another one of these."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Anything()

    def __getitem__(self, _: Any) -> Any:
        return _Anything()


class _Rows(_Anything):
    """The rows of a source, whose columns are known."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = list(columns)


class _Session(_Anything):
    """Notes what is read through it."""

    def __init__(self, uses: list[Use]) -> None:
        self.where = ""
        self._uses = uses

    @property
    def read(self) -> _Reader:
        return _Reader(self, is_streaming=False)

    @property
    def readStream(self) -> _Reader:  # noqa: N802 (Spark's name)
        return _Reader(self, is_streaming=True)

    def note(self, options: Mapping[str, str], *, is_streaming: bool) -> None:
        self._uses.append(Use(self.where, False, is_streaming, dict(options)))


class _Reader(_Anything):
    def __init__(self, session: _Session, *, is_streaming: bool) -> None:
        self._session = session
        self._is_streaming = is_streaming
        self._format = ""
        self._options: dict[str, str] = {}

    def format(self, name: str) -> _Reader:
        self._format = name
        return self

    def option(self, name: str, value: Any) -> _Reader:
        return self.options(**{name: value})

    def options(self, **given: Any) -> _Reader:
        for name, value in given.items():
            self._options[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def schema(self, _: Any) -> _Reader:
        return self

    def load(self, *_: Any, format: str | None = None, **given: Any) -> Any:  # noqa: A002 (Spark's name)
        given.pop("schema", None)
        self.options(**given)
        if (format or self._format) != FORMAT:
            return _Anything()
        self._session.note(self._options, is_streaming=self._is_streaming)
        return _Rows(columns_of(self._options))
