"""`ottla serve`: run a broker until SIGTERM, SIGHUP or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.cli.arguments import directory
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.signals import is_ignored
from ottla.config.broker import BrokerConfig
from ottla.config.properties import Properties, parse_properties
from ottla.descriptors import raise_limit
from ottla.net.server import open_listener
from ottla.runtime.garbage import collect_rarely
from ottla.runtime.lock_sharing import share_lock_often
from ottla.store.api import NotAllowed, StoreUnavailable

logger = logging.getLogger(__name__)

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_LEVEL_VARIABLE = "OTTLA_LOG_LEVEL"
DEFAULT_LOG_LEVEL = "WARNING"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="a Kafka broker's settings file")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen for clients (default: 127.0.0.1:9092; port 0: a free one)",
    )
    parser.add_argument("--data", metavar="DIR", help="the log directory (default: ottla-data)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, which overrides the file; repeatable",
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help=f"how much to log on standard error (default: ${LOG_LEVEL_VARIABLE}, or {DEFAULT_LOG_LEVEL})",
    )


def run(options: argparse.Namespace) -> ExitCode:
    logging.basicConfig(
        level=_log_level(options), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    properties = _properties(options)
    config, warnings = BrokerConfig.load(properties)
    for warning in warnings:
        print(f"ottla: warning: {warning}", file=sys.stderr)
    for path in config.log_directories:
        try:
            directory(path)
        except argparse.ArgumentTypeError as error:
            raise CommandError(ExitCode.USAGE, f"log.dirs: {error}", "name a directory, such as with --data") from error
    raise_limit()
    sockets = [
        open_listener(
            endpoint.host,
            endpoint.port,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            backlog=config.socket_listen_backlog_size,
        )
        for endpoint in config.endpoints
    ]
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(properties, sockets))
    except (StoreUnavailable, NotAllowed) as error:
        code = ExitCode.UNREACHABLE if config.zookeeper_connect else ExitCode.UNEXPECTED
        raise CommandError(code, str(error)) from error


def _log_level(options: argparse.Namespace) -> str:
    """The option, or the environment: whoever runs a service can change its environment more easily."""
    level: str = options.log_level or os.environ.get(LOG_LEVEL_VARIABLE) or DEFAULT_LOG_LEVEL
    if level not in LOG_LEVELS:
        raise CommandError(ExitCode.USAGE, f"{LOG_LEVEL_VARIABLE}={level}: must be one of {', '.join(LOG_LEVELS)}")
    return level


def _properties(options: argparse.Namespace) -> Properties:
    """The settings: the file, then the options, the more particular ones last."""
    properties = Properties({})
    if options.properties is not None:
        try:
            with open(options.properties, encoding="utf-8") as file:
                properties = parse_properties(file.read(), options.properties)
        except OSError as error:
            raise CommandError(
                ExitCode.NOT_FOUND,
                f"{options.properties}: {error.strerror}",
                "give a server.properties file that can be read",
            ) from error
        except UnicodeDecodeError as error:
            raise CommandError(
                ExitCode.USAGE, f"{options.properties}: {error}", "a server.properties file is text in UTF-8"
            ) from error
    given: dict[str, str] = {}
    if options.listen is not None:
        host, separator, port = options.listen.rpartition(":")
        if not separator or not port.isdigit():
            raise CommandError(
                ExitCode.USAGE, f"--listen {options.listen}: must be HOST:PORT", "such as 127.0.0.1:9092"
            )
        given["listeners"] = f"PLAINTEXT://{host}:{port}"
    if options.data is not None:
        given["log.dirs"] = options.data
    for text in options.set:
        name, separator, value = text.partition("=")
        if not separator:
            raise CommandError(ExitCode.USAGE, f"--set {text}: must be KEY=VALUE")
        given[name.strip()] = value.strip()
    return properties.overridden(given, "the command line")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: about a tenth less CPU per request."""
    try:
        import uvloop  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]


async def _serve(properties: Properties, sockets: list[socket.socket]) -> ExitCode:
    signalled, stopping = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_on(number: signal.Signals) -> None:
        logger.info("%s was received", number.name)
        signalled.set()
        stopping.set()

    # A shell has jobs in the background ignore the interrupt that is meant for the one in front (`ottla serve &` in a
    # script), and nohup the end of the terminal: that stays so, as it does for every other command.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGTERM or not is_ignored(number):
            loop.add_signal_handler(number, stop_on, number)
    # Only now: clients that wait for a restarted broker can connect already, and importing it is most of a start.
    from ottla.broker.broker import Broker

    listeners = iter(sockets)
    broker = Broker(properties, bind=lambda host, port: next(listeners), on_failure=stopping.set)
    if not await _starts(broker.start(), signalled):
        logger.info("it stops before it has started")
        return ExitCode.OK
    collect_rarely()
    share_lock_often()
    host, port = broker.address
    print(f"ready {host}:{port}", flush=True)
    await stopping.wait()
    failure = broker.logs.failure
    if failure is not None:
        print(f"ottla: {failure}; the broker stops", file=sys.stderr)
    await broker.stop()
    return ExitCode.OK if failure is None else ExitCode.UNEXPECTED


async def _starts(start: Coroutine[Any, Any, None], signalled: asyncio.Event) -> bool:
    """Whether it comes up; False where it is to stop before. What it waits for, a controller, may never come."""
    starting, waiting = asyncio.ensure_future(start), asyncio.ensure_future(signalled.wait())
    await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not starting.done():
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


COMMAND = Command(
    name="serve",
    help="run a broker",
    description="Run a broker until Ctrl-C, SIGTERM or SIGHUP. It prints one line, `ready HOST:PORT`, once it serves\n"
    "clients. If all its log directories have failed, it stops with exit code 1.\n"
    "It uses as many file descriptors as the hard limit allows (ulimit -Hn). Half of them are for files, which are\n"
    "closed and reopened as needed; the rest, except for a reserve, are for connections, and further ones are refused.",
    add_arguments=add_arguments,
    run=run,
)
