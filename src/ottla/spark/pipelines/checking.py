"""Is a pipeline fit to run? Asked before Spark starts: its files, its options, and the topics it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.blocking import Blocking
from ottla.client.metadata import ClientOptions
from ottla.errors import OttlaError
from ottla.net.client import ConnectionOptions, connect_tcp
from ottla.spark import options as source_options
from ottla.spark import sink_options
from ottla.spark.group_progress import check_group_is_free
from ottla.spark.installation import check_installation
from ottla.spark.options import SourceOptions
from ottla.spark.pipelines.definitions import Use, definitions_of
from ottla.spark.pipelines.project import Program, Project, Target
from ottla.spark.security_options import Security

CLIENT: Final = ClientOptions(ConnectionOptions(client_id="ottla-pipeline-check", connect_timeout_s=5.0), timeout_s=5.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `problem` says what is wrong with it, if anything is."""

    where: str
    what: str
    problem: str = ""
    note: str = ""

    @property
    def is_good(self) -> bool:
        return not self.problem


def check(target: Target) -> list[Finding]:
    """Everything that can be known without Spark. What cannot be looked at at all is a ConfigError."""
    check_installation()
    if isinstance(target, Program):
        return [_check_program(target)]
    return check_project(target)


def _check_program(program: Program) -> Finding:
    try:
        compile(program.path.read_text(encoding="utf-8"), str(program.path), "exec")
    except SyntaxError as error:
        return Finding(str(program.path), "program", f"line {error.lineno}: {error.msg}")
    return Finding(str(program.path), "program", note="what a program reads is known only when it runs")


def check_project(project: Project) -> list[Finding]:
    if not project.files:
        where = ", ".join(project.globs) or "no libraries"
        return [Finding(str(project.directory), where, "there are no files with transformations")]
    if "://" not in project.storage:
        problem = f"storage is {project.storage}: Spark wants a whole URI, such as file:///data/{project.name}"
        return [Finding(str(project.directory), "storage", problem)]
    definitions = definitions_of(project)
    if not definitions.outputs and not any(path.suffix == ".sql" for path in project.files):
        return [Finding(str(project.directory), "definitions", "no file defines a table, a view or a sink")]
    found = check_uses(definitions.uses)
    for name, reason in definitions.not_followed.items():
        found.append(Finding(f"flow {name}", "function", note=f"only Spark can tell ({reason})"))
    return found


def check_uses(uses: Iterable[Use]) -> list[Finding]:
    findings: list[Finding] = []
    with _Brokers() as brokers:
        for use in uses:
            findings += _check_sink(use, brokers) if use.is_sink else _check_source(use, brokers)
    return findings


def _check_source(use: Use, brokers: _Brokers) -> list[Finding]:
    try:
        options = source_options.parse(use.options, is_streaming=use.is_streaming)
        client = brokers.client(options.bootstrap_servers, options.client.security)
        findings = [_checked_topic(use, name, client) for name in _named(options)]
        if options.topics.pattern:
            findings.append(_checked_pattern(use, options.topics.pattern, client))
        if options.group is not None:
            check_group_is_free(client, options.group)
    except OttlaError as error:
        return [Finding(use.where, "source", str(error))]
    return [*findings, *_ignored(use, options.ignored)]


def _check_sink(use: Use, brokers: _Brokers) -> list[Finding]:
    try:
        options = sink_options.parse(use.options)
        client = brokers.client(options.bootstrap_servers, options.security)
        if options.topic is None:
            return [Finding(use.where, "sink", note="the topic of each row is in its column `topic`")]
        findings = [_checked_topic(use, options.topic, client)]
    except OttlaError as error:
        return [Finding(use.where, "sink", str(error))]
    return [*findings, *_ignored(use, options.ignored)]


def _named(options: SourceOptions) -> list[str]:
    return sorted({*options.topics.names, *(each.topic for each in options.topics.partitions)})


def _checked_topic(use: Use, name: str, client: Blocking) -> Finding:
    view = client.wait(client.cluster.find_topics([name]))
    if name not in view.topics:
        return Finding(use.where, f"topic {name}", f"the topic does not exist: `ottla topics create {name}` makes it")
    return Finding(use.where, f"topic {name}", note=f"{len(view.topics[name].partitions)} partitions")


def _checked_pattern(use: Use, pattern: str, client: Blocking) -> Finding:
    found = sorted(name for name in client.wait(client.cluster.view()).topics if re.search(pattern, name))
    if not found:
        return Finding(use.where, f"topics with {pattern}", note="there is none now; new ones are read once they exist")
    return Finding(use.where, f"topics with {pattern}", note=", ".join(found[:5]) + (", …" if len(found) > 5 else ""))


def _ignored(use: Use, names: Iterable[str]) -> list[Finding]:
    return [Finding(use.where, f"option {name}", note="unknown, and ignored: is it spelled right?") for name in names]


class _Brokers:
    """A client for each cluster that is named, connected once."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, Security | None], Blocking] = {}
        self._failures: dict[tuple[str, Security | None], OttlaError] = {}

    def __enter__(self) -> _Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.__exit__()

    def client(self, servers: str, security: Security | None) -> Blocking:
        key = servers, security
        if key in self._failures:
            raise self._failures[key]
        if key not in self._clients:
            try:
                connector = connect_tcp if security is None else security.connector()
                self._clients[key] = Blocking(servers, CLIENT, connector).__enter__()
            except OttlaError as error:
                self._failures[key] = error
                raise
        return self._clients[key]
