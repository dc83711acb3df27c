"""A declared pipeline, run by Spark: the same code as `spark-pipelines run`, with our session settings.

`spark-pipelines run` reads what is there, and ends. Here the session stays and the next round follows, until the
pipeline is stopped. The tables are in the storage of the pipeline, with a catalog of its own beside them, so that a
later run finds what an earlier one has made.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import urlparse

from ottla.runtime.stop_flag import StopFlag
from ottla.spark import compat
from ottla.spark.pipelines.project import Project, check_installed
from ottla.spark.pipelines.running import RunFailedError, RunOptions, handled_signals, reports
from ottla.spark.sessions import DRIVER_JAVA_OPTIONS, session

LOOPBACK: Final = "127.0.0.1"
CONNECT_PLUGIN: Final = "org.apache.spark.sql.connect.SparkConnectPlugin"
METASTORE: Final = "spark.hadoop.javax.jdo.option.ConnectionURL"


def run_declared(project: Project, options: RunOptions, stopping: StopFlag, *, dry: bool = False) -> None:
    check_installed()
    storage = options.storage or project.storage
    os.environ.setdefault(compat.TOKEN_VARIABLE, secrets.token_hex())  # others on this machine reach the port, too
    with ExitStack() as stack:
        server = session(project.name, options.master, config=_config(project, options, storage))
        stack.callback(server.stop)
        stack.enter_context(handled_signals(stopping))  # Spark has put a handler of its own in place of ours
        remote = stack.enter_context(compat.connected(server))
        if options.bootstrap_servers is not None and not dry:
            stack.enter_context(reports(remote, options))
        number = 0
        while not stopping.is_set():
            number += 1
            _round(project, remote, storage, number, dry=dry)
            if options.once or dry or stopping.wait(options.pause_s):
                return


def _config(project: Project, options: RunOptions, storage: str) -> dict[str, str]:
    config = {
        "spark.plugins": CONNECT_PLUGIN,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.connect.serverStacktrace.enabled": "false",
        "spark.sql.catalogImplementation": "hive",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": f"{storage.rstrip('/')}/warehouse",
    }
    local = urlparse(storage)
    if local.scheme == "file":
        os.makedirs(local.path, exist_ok=True)
        config[DRIVER_JAVA_OPTIONS] = f"-Dderby.stream.error.file={local.path.rstrip('/')}/derby.log"
        config[METASTORE] = f"jdbc:derby:;databaseName={local.path.rstrip('/')}/catalog;create=true"
    return {**config, **project.configuration, **options.config}


def _round(project: Project, remote: Any, storage: str, number: int, *, dry: bool) -> None:
    try:
        for message in _events(project, remote, storage, dry=dry):
            print(f"round {number:,}: {message}", file=sys.stderr, flush=True)
    except Exception as error:
        raise RunFailedError(f"the pipeline {project.name} has failed: {_first_lines(error)}") from error


def _events(project: Project, remote: Any, storage: str, *, dry: bool) -> Iterator[str]:
    """What Spark says of a round, flow by flow."""
    cli: Any = import_module("pyspark.pipelines.cli")
    spec = cli.load_pipeline_spec(project.path)
    graph = cli.create_dataflow_graph(remote, spec.catalog, spec.database, spec.configuration)
    with patch.object(cli, "log_with_curr_timestamp", lambda message: None):  # a line for each file, in every round
        cli.register_definitions(project.path, cli.SparkConnectGraphElementRegistry(remote, graph), spec, remote, graph)
    for result in cli.start_run(remote, graph, [], False, [], dry, storage):
        if "pipeline_event_result" in result:
            yield result["pipeline_event_result"].event.message


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__
