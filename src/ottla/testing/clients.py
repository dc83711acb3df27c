"""Other people's Kafka clients, each behind a small driver program that executes steps, one by one.

The drivers are sources in the language of their client (`tests/interop/clients/drivers`); `CLIENTS` pins what they are
built with. A client is fetched by its coordinates and built once, into `$OTTLA_CACHE` or the user's cache directory; a
lock makes parallel test workers wait for the first. A driver reads one JSON line a step and answers with another, so
one process serves a whole test run. Where a program is missing that a client needs, `Client.missing_programs` says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ottla.errors import OttlaError
from ottla.runtime.cache import cache_directory
from ottla.testing.apache_kafka import JVM_FLAGS, KAFKA_4, ApacheKafka
from ottla.testing.lock_file import locked

BUILD_TIMEOUT_S: Final = 900
# Longer than a driver waits itself: it should be the one to say what did not happen.
STEP_TIMEOUT_S: Final = 300
STOP_TIMEOUT_S: Final = 10
READ_BYTES: Final = 1 << 20


class ClientError(OttlaError):
    """A client could not be fetched or built, or its driver broke off; the message carries its last words."""


class StepError(OttlaError):
    """The client reports an error: the code that the broker sent, or None if the trouble is the client's own."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as a test wants it written; without a timestamp the client's clock gives one."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as a client handed it out."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Client:
    """A client in one version: where it comes from, the source of its driver, and what it cannot do and why."""

    name: str
    version: str
    driver: str
    build: Callable[[Client, Path], list[str]]
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def slug(self) -> str:
        return str(self).replace(" ", "-")

    @property
    def missing_programs(self) -> list[str]:
        return [program for program in self.programs if shutil.which(program) is None]

    def command(self, drivers: Path) -> list[str]:
        """What starts the driver, built first if need be; `drivers` holds the sources."""
        return self.build(self, drivers)


class Driver:
    """A running driver of one client; as a context manager it starts and always ends."""

    def __init__(self, command: Sequence[str], bootstrap: str) -> None:
        self._command = [*command, bootstrap]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the driver
        self._unread = bytearray()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """The end of its input ends a driver; one that does not care is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def do(self, step: str, **parameters: object) -> Any:
        """What the client answers to one step. StepError if it reports an error."""
        line = json.dumps({"do": step, **parameters}).encode() + b"\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except BrokenPipeError:
            raise self._broken(step, "had ended") from None
        reply = json.loads(self._read_line(step))
        if "error" in reply:
            raise StepError(reply["error"]["code"], reply["error"]["message"])
        return reply["ok"]

    def produce(
        self, topic: str, records: Iterable[Sent], *, acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int | None]:
        """Writes the records and returns their offsets, None where the client does not tell."""
        lines = [
            {
                "partition": record.partition,
                "key": _encoded(record.key),
                "value": _encoded(record.value),
                "headers": [[name, _encoded(value)] for name, value in record.headers],
                "timestamp": record.timestamp,
            }
            for record in records
        ]
        answer = self.do("produce", topic=topic, acks=acks, codec=codec, idempotent=idempotent, records=lines)
        offsets: list[int | None] = answer["offsets"]
        return offsets

    def send(self, topic: str, records: Iterable[Sent]) -> list[int]:
        """Writes values with one producer for all such steps, idempotent and at acks=all. The driver in Java has it."""
        lines = [{"partition": record.partition, "value": _encoded(record.value)} for record in records]
        offsets: list[int] = self.do("send", topic=topic, records=lines)["offsets"]
        return offsets

    def consume(self, topic: str, count: int, *, partitions: Sequence[int] = (0,), **start: int) -> list[Seen]:
        """At least `count` records from `offset=` or `timestamp=` on, without a group, by partition and offset."""
        answer = self.do("consume", topic=topic, partitions=list(partitions), start=start or {"offset": 0}, count=count)
        seen = [
            Seen(
                record["partition"],
                record["offset"],
                record["timestamp"],
                _decoded(record["key"]),
                _decoded(record["value"]),
                tuple((name, _decoded(value)) for name, value in record["headers"]),
            )
            for record in answer["records"]
        ]
        return sorted(seen, key=lambda record: (record.partition, record.offset))

    def read_in_group(self, topic: str, group: str, count: int) -> list[bytes]:
        """The values that a member of a group reads before it commits and leaves."""
        answer = self.do("read_in_group", topic=topic, group=group, count=count)
        return [base64.b64decode(value) for value in answer["values"]]

    def _read_line(self, step: str) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + STEP_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            searched = 0
            while (end := self._unread.find(b"\n", searched)) < 0:
                searched = len(self._unread)
                if not selector.select(deadline - time.monotonic()):
                    self._process.kill()
                    raise self._broken(step, f"did not answer within {STEP_TIMEOUT_S} s")
                data = os.read(self._process.stdout.fileno(), READ_BYTES)
                if not data:
                    raise self._broken(step, "ended")
                self._unread += data
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _broken(self, step: str, what: str) -> ClientError:
        self._process.wait(STOP_TIMEOUT_S)
        self._errors.seek(0)
        said = self._errors.read()[-4000:].decode(errors="replace")
        return ClientError(f"{' '.join(self._command)} {what} at the step {step}: {said}")


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# --- fetch and build ----------------------------------------------------------------------------------------


def _in_python(client: Client, drivers: Path) -> list[str]:
    return [str(python_with(client.slug, client.packages)), str(drivers / client.driver)]


def python_with(name: str, packages: Sequence[str]) -> Path:
    """The Python of a virtual environment with these packages: two versions of a client cannot share one."""

    def make(target: Path) -> None:
        _run([sys.executable, "-m", "venv", str(target)])
        _run([str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages])

    return _made_once(name, packages, make) / "bin" / "python"


def _in_node(client: Client, drivers: Path) -> list[str]:
    def make(target: Path) -> None:
        target.mkdir()
        _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(target), *client.packages])

    home = _made_once(client.slug, client.packages, make)
    return ["env", f"NODE_PATH={home / 'node_modules'}", "node", str(drivers / client.driver)]


def _in_go(client: Client, drivers: Path) -> list[str]:
    """A program of its own; the modules and what they compile to stay in Go's own caches."""
    sources = [drivers / "steps.go", drivers / client.driver]
    requires = "".join(f"require {package.replace('@', ' ')}\n" for package in client.packages)

    def make(target: Path) -> None:
        target.mkdir()
        for source in sources:
            shutil.copy(source, target)
        (target / "go.mod").write_text(f"module ottla/interop/clients\n\n{requires}")
        _run(["go", "mod", "tidy"], target)
        _run(["go", "build", "-o", "driver", "."], target)

    home = _made_once(client.slug, [requires, *(source.read_text() for source in sources)], make)
    return [str(home / "driver")]


def _in_java(client: Client, drivers: Path) -> list[str]:
    """Compiled beside the jars of the whole Kafka of that version, which bring a JSON library and a logger."""
    jars = ApacheKafka.resolve(client.version).jars
    source = drivers / client.driver

    def make(target: Path) -> None:
        _run(["javac", "-d", str(target), "-cp", f"{jars}/*", str(source)])

    home = _made_once(client.slug, [source.read_text()], make)
    silence = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx256m", *JVM_FLAGS, silence, "-cp", f"{home}:{jars}/*", source.stem]


def _as_installed(client: Client, drivers: Path) -> list[str]:
    return [sys.executable, str(drivers / client.driver)]


def _made_once(name: str, ingredients: Iterable[str], make: Callable[[Path], None]) -> Path:
    """The directory that `make` fills, from the cache if the same ingredients were there before."""
    home = cache_directory() / "clients"
    home.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("\0".join([sys.version, *ingredients]).encode()).hexdigest()[:12]
    target = home / f"{name}-{digest}"
    with locked(home / f"{target.name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as scratch:
                made = Path(scratch) / "made"
                make(made)
                made.rename(target)
    return target


def _run(command: list[str], directory: Path | None = None) -> None:
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    if done.returncode != 0:
        raise ClientError(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-4000:]}")


# --- which ones, and what they can do -----------------------------------------------------------------------

# The rows of the table in docs/reference/clients.md; a test names the one it is about.
FEATURES: Final = (
    "create a topic",
    "describe a topic",
    "add partitions",
    "delete a topic",
    "1,000 partitions",
    "describe the cluster",
    "describe configs",
    "alter configs",
    "produce uncompressed",
    "produce gzip",
    "produce snappy",
    "produce lz4",
    "produce zstd",
    "record headers",
    "null header values",
    "null keys and values",
    "record timestamps",
    "1 MiB records",
    "idempotent producer",
    "read in a group, commit, go on",
    "share partitions in a group",
    "transactions",
    "copy with offsets in a transaction",
    "read only what is committed",
    "consume from an offset",
    "consume from a timestamp",
    "list offsets",
    "offset of the newest timestamp",
    "delete records",
    "read what every other client wrote",
    "error: unknown topic",
    "error: topic exists",
    "error: record too large",
)

# The rows of the second table there: the same clients where brokers ask who they are.
SECURITY_FEATURES: Final = (
    "TLS",
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "error: wrong password",
    "error: expired token",
    "error: expired certificate",
    "error: wrong host name",
    "stream beyond the lifetime of a login",
    "error: right revoked in a stream",
)

_NO_NEWEST: Final = {"offset of the newest timestamp": "no call for it, or none with that timestamp"}
_NO_ADMIN: Final = dict.fromkeys(
    (
        "create a topic",
        "add partitions",
        "delete a topic",
        "describe configs",
        "alter configs",
        "delete records",
        "error: topic exists",
    ),
    "produces, consumes and lists only",
)
_NO_TRANSACTIONS: Final = ("transactions", "copy with offsets in a transaction")
_NO_NULL_HEADERS: Final = {"null header values": "a value must be bytes"}
_GO: Final = ("go",)
_NODE: Final = ("node", "npm")

CLIENTS: Final = (
    Client("Java client", KAFKA_4, "KafkaClientsDriver.java", _in_java, ("java", "javac", "mvn")),
    Client("confluent-kafka", "2.16.1", "confluent_driver.py", _in_python, (), ("confluent-kafka==2.16.1",)),
    Client(
        "confluent-kafka",
        "2.0.2",
        "confluent_driver.py",
        _in_python,
        packages=("confluent-kafka==2.0.2",),
        lacks={
            **_NO_NEWEST,
            "delete records": "not in this version",
            **dict.fromkeys(
                ("SCRAM-SHA-256", "SCRAM-SHA-512"),
                "its last message holds another nonce than it was given, which Kafka 4 refuses as well",
            ),
        },
    ),
    Client(
        "kcat",
        "1.7.1",
        "kcat_driver.py",
        _as_installed,
        ("kcat",),
        lacks={
            **_NO_NEWEST,
            **_NO_ADMIN,
            "record timestamps": "no option for it",
            "share partitions in a group": "is one member, and does not report its assignment",
            **dict.fromkeys(_NO_TRANSACTIONS, "puts all its input into one transaction, which it ends at the end"),
        },
    ),
    Client(
        "kafka-python",
        "3.0.12",
        "kafka_python_driver.py",
        _in_python,
        packages=("kafka-python==3.0.12", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0"),
        lacks=_NO_NULL_HEADERS,
    ),
    Client(
        "kafka-python",
        "2.0.2",
        "kafka_python_driver.py",
        _in_python,
        packages=("kafka-python==2.0.2", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0"),
        lacks={
            **_NO_NEWEST,
            **_NO_NULL_HEADERS,
            "delete records": "not in this version",
            "idempotent producer": "not in this version",
            **dict.fromkeys((*_NO_TRANSACTIONS, "read only what is committed"), "not in this version"),
        },
    ),
    Client(
        "aiokafka",
        "0.14.0",
        "aiokafka_driver.py",
        _in_python,
        packages=("aiokafka==0.14.0", "cramjam==2.14.0"),
        lacks={
            **_NO_NEWEST,
            "error: expired token": "takes the refusal for a login, and waits for the answer to its next request",
        },
    ),
    Client(
        "KafkaJS",
        "2.2.4",
        "kafkajs_driver.js",
        _in_node,
        _NODE,
        ("kafkajs@2.2.4", "snappyjs@0.7.0", "lz4-napi@2.10.0", "@bokuweb/zstd-wasm@0.0.27"),
        lacks={**_NO_NEWEST, **_NO_NULL_HEADERS},
    ),
    Client(
        "franz-go",
        "1.22.2",
        "franz_go_driver.go",
        _in_go,
        _GO,
        ("github.com/twmb/franz-go@v1.22.2", "github.com/twmb/franz-go/pkg/kadm@v1.19.0"),
    ),
    Client(
        "sarama",
        "1.61.1",
        "sarama_driver.go",
        _in_go,
        _GO,
        ("github.com/IBM/sarama@v1.61.1",),
        lacks=_NO_NEWEST,
    ),
)

# Those whose drivers log in.
SECURED_CLIENTS: Final = tuple(client for client in CLIENTS if client.name not in ("kcat", "sarama"))
