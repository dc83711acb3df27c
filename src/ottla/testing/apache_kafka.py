"""Apache Kafka itself, as the judge of our bytes: its dump tool and a one-node broker, as child processes.

The jars come from Maven and are kept outside the repository (`testing/maven.py`). Everything listens on loopback,
logs into its own directory and is ended by its own process id. Where Java or Maven is absent, `missing_programs()`
says so.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from ottla.errors import OttlaError
from ottla.net.ports import free_ports
from ottla.testing import maven
from ottla.testing.maven import Artifact

# The last line that still knows ZooKeeper and the old formats, and the newest one.
KAFKA_3_9: Final = "3.9.1"
KAFKA_4: Final = "4.3.1"

# The one logger that both lines of Kafka can share: it writes to stderr and is set by system properties.
LOGGER: Final = Artifact("org.slf4j", "slf4j-simple", "1.7.36")

# For a broker that is started again: its controller may take it back only once its old session is over.
SHORT_SESSION: Final = {"broker.session.timeout.ms": "2000"}

DUMP_TIMEOUT_S: Final = 300
START_TIMEOUT_S: Final = 180
STOP_TIMEOUT_S: Final = 120
# Short-lived JVMs and small brokers: the first compiler tier and the serial collector cost the least CPU.
JVM_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@dataclass(frozen=True, slots=True)
class JvmProfile:
    """How Java runs a broker. `{directory}` in a flag stands for the broker's own."""

    name: str
    heap: str
    flags: tuple[str, ...]


# Two of them: tests want a broker that is there soon and costs little, measurements want the one that people run.
SHORT_RUN: Final = JvmProfile("short run", "512m", JVM_FLAGS)
# What kafka-server-start.sh and kafka-run-class.sh pass to Java where nothing is set in the environment.
AS_ITS_SCRIPT: Final = JvmProfile(
    "as its start script",
    "1G",
    (
        "-Xms1G",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-XX:MaxInlineLevel=15",
        "-Djava.awt.headless=true",
        "-Xlog:gc*:file={directory}/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M",
        "-Dcom.sun.management.jmxremote=true",
        "-Dcom.sun.management.jmxremote.authenticate=false",
        "-Dcom.sun.management.jmxremote.ssl=false",
    ),
)
READY_LINE: Final = "Kafka Server started"
# How DumpLogSegments begins what it says of a wrong file on its standard output.
COMPLAINTS: Final = (
    "Mismatches in",
    "Non-consecutive offsets in",
    "isvalid: false",
    "isValid: false",
    "Found timestamp mismatch in",
    "Found out of order timestamp in",
    "indexed offsets are not found in",
    "invalid bytes at the end of",
    "Ignoring unknown file",
)


class ApacheKafkaError(OttlaError):
    """A tool or broker of Apache Kafka did not do what was asked; the message carries its own last words."""


def missing_programs() -> list[str]:
    """The programs that this module needs and that are not on the path."""
    return [program for program in ("java", "mvn") if shutil.which(program) is None]


@dataclass(frozen=True, slots=True)
class Dump:
    """What the dump tool printed, and the lines of it that say that something is wrong.

    The tool reports damage in words, some on each of its two outputs, and ends with exit code 0 all the same.
    """

    lines: list[str]
    complaints: list[str]


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """One version of Apache Kafka: a directory of jars and the commands in it."""

    version: str
    jars: Path

    @classmethod
    def resolve(cls, version: str = KAFKA_3_9) -> ApacheKafka:
        """The given version with all it needs to run, from the cache or from Maven."""
        artifacts = [Artifact("org.apache.kafka", "kafka_2.13", version), LOGGER]
        if not version.startswith("3."):
            # From 4.0 on the dump tool lives in a jar of its own.
            artifacts.append(Artifact("org.apache.kafka", "kafka-tools", version))
        return cls(version, maven.jars(f"kafka-{version}", artifacts))

    def dump_log(
        self,
        files: Iterable[Path],
        *,
        deep: bool = False,
        print_data: bool = False,
        index_sanity: bool = False,
        verify_index: bool = False,
        extra: Sequence[str] = (),
    ) -> Dump:
        """What Kafka's DumpLogSegments prints of the files, all in one JVM.

        `index_sanity` and `verify_index` check indexes instead of printing their entries.
        """
        flags = {
            "--deep-iteration": deep,
            "--print-data-log": print_data,
            "--index-sanity-check": index_sanity,
            "--verify-index-only": verify_index,
        }
        arguments = [
            "--files",
            ",".join(map(str, files)),
            *(flag for flag, on in flags.items() if on),
            *extra,
        ]
        command = self.java(self._dump_class, "256m", arguments, {"defaultLogLevel": "warn"})
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=DUMP_TIMEOUT_S
        )
        if done.returncode != 0:
            raise ApacheKafkaError(
                f"DumpLogSegments {self.version} ended with {done.returncode}: {done.stderr[-4000:]}"
            )
        lines = done.stdout.splitlines()
        warnings = [line for line in lines if any(words in line for words in COMPLAINTS)]
        return Dump(lines, [*warnings, *done.stderr.splitlines()])

    @property
    def _dump_class(self) -> str:
        return "kafka.tools.DumpLogSegments" if self._is_3 else "org.apache.kafka.tools.DumpLogSegments"

    @property
    def _is_3(self) -> bool:
        return self.version.startswith("3.")

    def java(
        self,
        main: str,
        heap: str,
        arguments: Iterable[str],
        log_levels: Mapping[str, str],
        flags: Sequence[str] = JVM_FLAGS,
    ) -> list[str]:
        """The command line that runs one of Kafka's classes."""
        levels = [f"-Dorg.slf4j.simpleLogger.{name}={level}" for name, level in log_levels.items()]
        return ["java", f"-Xmx{heap}", *flags, *levels, "-cp", f"{self.jars}/*", main, *arguments]


class KafkaBroker:
    """One broker of Apache Kafka in KRaft combined mode, on free loopback ports, over a directory of its own.

    As a context manager it starts and always ends. `stop` and `kill` end it the clean and the unclean way,
    `start` brings it back on the same data. `log_dir` holds the partitions. One that gets the address of the first of
    its cluster is a broker only and joins it.
    """

    def __init__(
        self,
        kafka: ApacheKafka,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        profile: JvmProfile = SHORT_RUN,
        node_id: int = 1,
        first: KafkaBroker | None = None,
    ) -> None:
        self._profile = profile
        self._flags = [flag.format(directory=directory) for flag in profile.flags]
        self.log_dir = directory / "data"
        self._kafka = kafka
        self._properties = directory / "server.properties"
        self._console = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        broker_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        self._controller = f"127.0.0.1:{controller_port}"
        roles = _only_broker(node_id, self.bootstrap, first._controller) if first else {"node.id": str(node_id)}
        directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(
            "".join(
                f"{name}={value}\n"
                for name, value in {
                    **_small_broker(self.log_dir, self.bootstrap, self._controller),
                    **roles,
                    **(settings or {}),
                }.items()
            )
        )

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def start(self) -> None:
        """Format the directory if it is new, start the broker and return once it serves."""
        assert self._process is None, "the broker runs already"
        if not (self.log_dir / "meta.properties").exists():
            self.format()
        levels = {"defaultLogLevel": "warn", "log.kafka.server.KafkaRaftServer": "info"}
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                self._kafka.java("kafka.Kafka", self._profile.heap, [str(self._properties)], levels, self._flags),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def stop(self) -> None:
        """End the clean way: flushed, with checkpoints and the mark of a clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as a crash would."""
        self._end(signal.SIGKILL)

    def console(self) -> str:
        """What the broker has said since it started."""
        return self._console.read_text(errors="replace")

    def format(self) -> None:
        """Make the directory one of this cluster, as Kafka wants it before the first start."""
        # Any 16 bytes in the URL-safe alphabet are a cluster id.
        arguments = [
            "format",
            "--cluster-id",
            "b3R0bGEtaW50ZXJvcC0xMQ",
            "--config",
            str(self._properties),
        ]
        done = subprocess.run(
            self._kafka.java("kafka.tools.StorageTool", "128m", arguments, {"defaultLogLevel": "warn"}),
            check=False,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise ApacheKafkaError(f"StorageTool ended with {done.returncode}: {done.stderr[-2000:]}")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY_LINE not in self.console():
            if self._process.poll() is not None:
                raise ApacheKafkaError(f"the broker ended while it started: {self.console()[-4000:]}")
            if time.monotonic() > deadline:
                raise ApacheKafkaError(f"the broker is not ready after {START_TIMEOUT_S} s: {self.console()[-4000:]}")
            time.sleep(0.05)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ApacheKafkaError(
                f"the broker did not stop within {STOP_TIMEOUT_S} s: {self.console()[-4000:]}"
            ) from None


def _only_broker(node_id: int, broker: str, controller: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{broker}",
    }


def _small_broker(log_dir: Path, broker: str, controller: str) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log_dir),
        "num.network.threads": "2",
        "num.io.threads": "2",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that misses its session on a busy machine leads in a new epoch later, and coordinates nothing until
        # then.
        "broker.session.timeout.ms": "120000",
        "broker.heartbeat.interval.ms": "300",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
    }
