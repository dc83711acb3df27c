"""A Spark session with settings that measurably help; each can be shown and turned off.

    spark = ottla.spark.session("orders")                                  # in this process, on all cores
    spark = ottla.spark.session("orders", "spark://host:7077", ui=True)    # on a cluster, with Spark's web interface
    print(ottla.spark.settings())                                          # what would be set

A plain `SparkSession` reads and writes topics too, with a few more milliseconds per micro-batch. Settings of the caller
or of `spark-submit` are never overridden. docs/guide/spark-streaming.md explains each setting.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ottla.spark import class_archive, compat
from ottla.spark.installation import check_installation
from ottla.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOCAL: Final = "local[*]"
DRIVER_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# Options whose values Spark does not show in plans: by default those whose names have `url`, and all whose text has
# `password`, `secret` or `token`. A private key in PEM has none of these.
HIDDEN_OPTIONS: Final = r"(?i)url|jaas|password|secret|token|keystore\.key|key\.pem"


def settings(
    *,
    unix_sockets: bool = True,
    file_checkpoints: bool = True,
    frozen_workers: bool = True,
    filter_pushdown: bool = True,
    ui: bool = False,
) -> dict[str, str]:
    """The Spark settings for these arguments. Those that depend on private parts of pyspark are set only with
    a release of pyspark that they were tested with.

    unix_sockets: Spark talks to Python workers through Unix domain sockets instead of TCP.
    file_checkpoints: checkpoints are written through `FileSystem` directly, and not through `FileContext`.
    frozen_workers: a Python worker's garbage collector skips what the first task loaded, so the collection
        after each task is short. The workers must have Ottla installed, as they must for its source and sink.
    filter_pushdown: filters on topic, partition, offset and timestamp reach the source in batch queries.
    ui: Spark's web interface; it costs start-up time and a port.
    """
    is_checked = find_spec("pyspark") is None or compat.is_checked_release()
    chosen = {
        "spark.ui.enabled": "true" if ui else "false",
        "spark.sql.redaction.options.regex": HIDDEN_OPTIONS,
    }
    if unix_sockets:
        chosen["spark.python.unix.domain.socket.enabled"] = "true"
    if file_checkpoints and is_checked:
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = compat.FILE_CHECKPOINT_MANAGER
    if frozen_workers and is_checked:
        chosen["spark.python.daemon.module"] = "ottla.spark.worker_daemon"
    if filter_pushdown:
        chosen["spark.sql.python.filterPushdown.enabled"] = "true"
    return chosen


def session(
    app_name: str = "ottla",
    master: str | None = None,
    *,
    config: Mapping[str, str] | None = None,
    unix_sockets: bool = True,
    file_checkpoints: bool = True,
    frozen_workers: bool = True,
    filter_pushdown: bool = True,
    ui: bool = False,
    shared_classes: bool = True,
    installed_pyspark: bool = True,
) -> SparkSession:
    """The session of this process: a new one, or the existing one.

    master: where Spark runs. By default where `spark-submit` says, or else in this process on all cores.
    config: your own settings; they override those of the arguments, which `settings` explains.
    shared_classes: Java loads its classes from an archive in the user's cache directory, if there is one for this
        version of Java and Spark: `python -m ottla.spark.class_archive` makes it. Has no effect with `spark-submit`
        or when Java is already running.
    installed_pyspark: workers on this machine load the installed pyspark, which is compiled, and not Spark's zip file,
        which is not. Has no effect if PYSPARK_PYTHON is set.
    """
    check_installation()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    is_running = compat.is_java_running()
    # Once Java runs, this knows what spark-submit was given.
    given = dict(SparkConf().getAll()) if is_running else {}
    given.update(config or {})
    if master is None and "spark.master" not in given:
        master = LOCAL
    if master is not None:
        given["spark.master"] = master
    if given["spark.master"].startswith("local"):
        # Workers on this machine run this Python; left to itself Spark takes the first python3 of the path.
        os.environ.setdefault("PYSPARK_PYTHON", worker_python() if installed_pyspark else sys.executable)
    chosen = settings(
        unix_sockets=unix_sockets,
        file_checkpoints=file_checkpoints,
        frozen_workers=frozen_workers,
        filter_pushdown=filter_pushdown,
        ui=ui,
    )
    if shared_classes and not is_running and (archive := class_archive.find()) is not None:
        own_options = given.pop(DRIVER_JAVA_OPTIONS, "")
        chosen[DRIVER_JAVA_OPTIONS] = f"{class_archive.java_options(archive)} {own_options}".strip()
    log.info("Spark on %s with %s", given["spark.master"], {**chosen, **(config or {})})
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**chosen, **given}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
