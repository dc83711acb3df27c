"""TLS, logins and ACLs beside Apache Kafka with the same, in turns; and what ACLs cost ours.

    python benchmarks/security.py [--rehearse]
    python benchmarks/security.py --part acls --part connections --results out/bench/results.json
    python benchmarks/security.py --part bulk --row "TLS, 1 KiB" --warm-up 90 --results out/bench/results.json

The second and third measure parts of it and put them beside what the file has, so that the whole can be measured in
pieces; each run starts its brokers anew and warms them up again.

Both have one listener for each of TLS, SASL, and SASL with TLS, the same certificate of a P-256 key, and `ACLS` rules
that are asked everywhere but on the listener by which all is set up. Bulk loads go through librdkafka, which checks the
certificate and logs in by SCRAM-SHA-512. A handshake and a login are a connection of their own with one request behind
it; what counts is CPU of the broker, as everywhere. The cost of ACLs is that of two brokers of ours, one with them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import ssl
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ottla import Admin
from ottla.client.admin.acls import Acl, AclOperation, AclResourceType, PatternType
from ottla.client.admin.users import ScramMechanism
from ottla.local_cluster.certificates import Authority
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.records import batch
from ottla.security.sasl.plain import plain_token
from ottla.security.sasl.scram import ScramClient
from ottla.security.scram import BY_SASL_NAME
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.broker import Broker
from ottla.testing.ports import free_port
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce_to_many
from ottla.testing.secured_listeners import SecuredListeners
from ottla.testing.security import password
from peers import SETTINGS, BulkLoad, Client, bulk_round, delete_bulk_topics, kafka_in, produce_frame
from turns import REHEARSAL, REHEARSAL_SCALE, ROUNDS, WARM_UP_S, Plan, Work, take_turns
from wire import Peer, RawConnection, frame_of

OPEN, TLS, LOGIN, BOTH = "OPEN", "TLS", "LOGIN", "BOTH"
PROTOCOLS = {OPEN: "PLAINTEXT", TLS: "SSL", LOGIN: "SASL_PLAINTEXT", BOTH: "SASL_SSL"}
TITLES = {TLS: "TLS", LOGIN: "SASL + 1,000 ACLs", BOTH: "TLS + SASL + 1,000 ACLs"}
PARTS = ("acls", "connections", "bulk")
ACLS = 1000
BULK_BYTES = 100_000_000
BULK_LOADS = (BulkLoad(100, "none", 16_384), BulkLoad(1024, "none", 1_000_000))
CONNECTIONS = 100  # of a round of handshakes or logins
REQUESTS = 5000
DEPTH = 50  # in flight
TOPICS = 50
WIDE_PARTITIONS = 10
USER = "alice"
SCRAM = "SCRAM-SHA-512"


@dataclass
class SecuredPeer(Peer):
    """A running broker with these listeners; its bootstrap is the open one."""

    listeners: SecuredListeners

    def login(self, listener: str) -> dict[str, str]:
        """In the names of librdkafka."""
        found = {"bootstrap.servers": self.listeners.address(listener), "security.protocol": PROTOCOLS[listener]}
        if PROTOCOLS[listener].endswith("SSL"):
            found["ssl.ca.location"] = str(self.listeners.authority.truststore)
        if PROTOCOLS[listener].startswith("SASL"):
            found |= {"sasl.mechanism": SCRAM, "sasl.username": USER, "sasl.password": password(USER)}
        return found


class SecuredConnection(RawConnection):
    """A raw connection that encrypts, and logs in, where it is told to."""

    def __init__(self, address: str, trusted: ssl.SSLContext | None = None, mechanism: str | None = None) -> None:
        super().__init__(address)
        if trusted is not None:
            self._socket = trusted.wrap_socket(self._socket, server_hostname="localhost")
        if mechanism is not None:
            self._log_in(mechanism)

    def _log_in(self, mechanism: str) -> None:
        self.ask(frame_of(SaslHandshakeRequest(mechanism=mechanism), 1))
        if mechanism == "PLAIN":
            self._send_token(plain_token(USER, password(USER)))
            return
        client = ScramClient(BY_SASL_NAME[mechanism], USER, password(USER), "a-nonce-of-the-benchmark")
        client.check(self._send_token(client.prove(self._send_token(client.first))))

    def _send_token(self, token: bytes) -> bytes:
        answer = self.ask(frame_of(SaslAuthenticateRequest(auth_bytes=token), 0))
        error, length = int.from_bytes(answer[8:10]), 12
        assert error == 0, f"the login failed with {error}"
        size = int.from_bytes(answer[length : length + 4])
        return answer[length + 4 : length + 4 + size]


# -- who is measured ---------------------------------------------------------------------------------------------------


def set_up(listeners: SecuredListeners, *, has_acls: bool = True) -> None:
    """Users and rules, over the open listener."""
    rules = [
        Acl(AclResourceType.TOPIC, prefix, f"User:{USER}", operation, pattern_type=PatternType.PREFIXED)
        for prefix in ("bulk-", "acl-")
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    rules.append(Acl(AclResourceType.GROUP, "bench", f"User:{USER}", AclOperation.READ))
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    rules += [
        Acl(
            AclResourceType.TOPIC,
            f"other-{number}-",
            f"User:u{number % 50}",
            AclOperation.READ,
            pattern_type=kinds[number % 2],
        )
        for number in range(ACLS - len(rules))
    ]
    with Admin({"bootstrap.servers": listeners.address(OPEN)}) as admin:
        admin.set_password(USER, password(USER), ScramMechanism.SCRAM_SHA_512)
        if has_acls:
            failed = [error for error in admin.create_acls(rules).values() if error is not None]
            assert not failed, failed[0]


@contextlib.contextmanager
def ottla(authority: Authority, *, has_acls: bool = True) -> Iterator[SecuredPeer]:
    listeners = SecuredListeners(PROTOCOLS, authority)
    with Broker({**SETTINGS, **listeners.settings(has_acls=has_acls)}, in_process=False) as broker:
        set_up(listeners, has_acls=has_acls)
        yield SecuredPeer("ottla", listeners.address(OPEN), broker.pid, 0.0, listeners)


@contextlib.contextmanager
def kafka(authority: Authority, directory: Path) -> Iterator[SecuredPeer]:
    listeners = SecuredListeners(PROTOCOLS, authority)
    settings = listeners.settings()
    controller = f"127.0.0.1:{free_port()}"
    settings |= {
        "advertised.listeners": settings["listeners"],
        "listeners": f"{settings['listeners']},CONTROLLER://{controller}",
        "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{controller}",
    }
    with kafka_in(directory, settings) as broker:
        set_up(listeners)
        yield SecuredPeer("kafka", listeners.address(OPEN), broker.pid, 0.0, listeners)


# -- loads -------------------------------------------------------------------------------------------------------------


def bulk(peers: Mapping[str, SecuredPeer], plan: Plan, total_bytes: int, wanted: str = "") -> dict[str, Any]:
    results = {}
    with Client() as client:
        for listener, title in TITLES.items():
            for load in BULK_LOADS:
                if wanted not in f"{title}, {load.name}":
                    continue
                print(f"  {title}: {load.name}", flush=True)
                works: dict[str, Work] = {
                    name: partial(bulk_round, client, peer, load, total_bytes, peer.login(listener))
                    for name, peer in peers.items()
                }
                results[f"{title}, {load.name}"] = take_turns(works, plan)
                for peer in peers.values():
                    delete_bulk_topics(client, peer)
    return results


def connecting(peer: SecuredPeer, listener: str, mechanism: str | None, count: int) -> dict[str, float]:
    """CPU of the broker for a connection that is ready to be used, and has been used once."""
    trusted = None
    if PROTOCOLS[listener].endswith("SSL"):
        trusted = ssl.create_default_context(cafile=str(peer.listeners.authority.truststore))
    asked = frame_of(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
    before = peer.cpu_s()
    for _ in range(count):
        connection = SecuredConnection(peer.listeners.address(listener), trusted, mechanism)
        connection.ask(asked)
        connection.close()
    return {"cpu_us_each": (peer.cpu_s() - before) / count * 1e6}


CONNECTING = {
    "connection": (OPEN, None),
    "TLS handshake": (TLS, None),
    "login by PLAIN": (LOGIN, "PLAIN"),
    f"login by {SCRAM}": (LOGIN, SCRAM),
    f"TLS handshake and login by {SCRAM}": (BOTH, SCRAM),
}


def connections(peers: Mapping[str, SecuredPeer], plan: Plan, count: int, wanted: str = "") -> dict[str, Any]:
    results = {}
    for title, (listener, mechanism) in CONNECTING.items():
        if wanted not in title:
            continue
        print(f"  {title}", flush=True)
        works: dict[str, Work] = {
            name: partial(connecting, peer, listener, mechanism, count) for name, peer in peers.items()
        }
        results[title] = take_turns(works, plan)
    return results


def requests() -> dict[str, bytes]:
    """What is asked of a broker with ACLs and of one without, each of one topic or of all."""
    wide = [(index, one_batch(bytes(100))) for index in range(WIDE_PARTITIONS)]
    return {
        "Produce to a partition, repeated": produce_frame("acl-0", bytes(batch.build(None, [bytes(100)], 1))),
        f"Produce to {WIDE_PARTITIONS} partitions": frame_of(produce_to_many("acl-wide", wide), 9),
        "Fetch of a partition": frame_of(fetch("acl-empty", 0, max_wait_ms=0), 11),
        "ListOffsets of a partition": frame_of(list_offsets("acl-0", -1), 7),
        "Metadata of a topic": frame_of(metadata("acl-0"), 9),
        f"Metadata of {TOPICS + 2} topics": frame_of(metadata(all_topics=True), 9),
    }


def request_round(
    peer: Peer, connection: RawConnection, frame: bytes, answer_bytes: int, count: int
) -> dict[str, float]:
    before = peer.cpu_s()
    for _ in range(count // DEPTH):
        connection.send(frame * DEPTH)
        connection.receive(answer_bytes * DEPTH)
    return {"cpu_us_per_request": (peer.cpu_s() - before) / (count // DEPTH * DEPTH) * 1e6}


def cost_of_acls(authority: Authority, plan: Plan, count: int, wanted: str = "") -> dict[str, Any]:
    """The same requests by the same user to two brokers of ours; `ratio` is what one with ACLs costs."""
    results: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        peers = {
            "with ACLs": stack.enter_context(ottla(authority)),
            "without": stack.enter_context(ottla(authority, has_acls=False)),
        }
        for peer in peers.values():
            with RawClient(peer.bootstrap) as client:
                names = {"acl-wide": WIDE_PARTITIONS, "acl-empty": 1, **{f"acl-{each}": 1 for each in range(TOPICS)}}
                for name, partitions in names.items():
                    client.ask(create_topic(name, partitions), 7)
        for title, frame in requests().items():
            if wanted not in title:
                continue
            print(f"  {title}, with and without ACLs", flush=True)
            works: dict[str, Work] = {}
            for name, peer in peers.items():
                connection = SecuredConnection(peer.listeners.address(LOGIN), None, "PLAIN")
                stack.callback(connection.close)
                answer_bytes = len(connection.ask(frame))
                works[name] = partial(request_round, peer, connection, frame, answer_bytes, count)
            row = take_turns(works, plan)
            ours, bare = (row[name]["cpu_us_per_request"]["median"] for name in peers)
            results[title] = {**row, "ratio": ours / bare}
    return results


def run(
    plan: Plan | None = None, scale: float = 1.0, parts: Collection[str] = PARTS, wanted: str = ""
) -> dict[str, Any]:
    """`wanted`: only rows that have this in their titles."""
    plan = plan or Plan()
    with tempfile.TemporaryDirectory(prefix="ottla-security-") as directory, contextlib.ExitStack() as stack:
        authority = Authority(Path(directory, "certificates"))
        results: dict[str, Any] = {}
        if "acls" in parts:
            results["cost_of_acls"] = cost_of_acls(authority, plan, max(DEPTH, int(REQUESTS * scale)), wanted)
        if not {"connections", "bulk"} & set(parts):
            return results
        peers = {"ottla": stack.enter_context(ottla(authority))}
        if missing := missing_programs():
            print(f"  Apache Kafka is left out: {missing}")
        else:
            peers["kafka"] = stack.enter_context(kafka(authority, Path(directory, "kafka")))
        if "connections" in parts:
            results["connections"] = connections(peers, plan, max(2, int(CONNECTIONS * scale)), wanted)
        if "bulk" in parts:
            results["bulk"] = bulk(peers, plan, int(BULK_BYTES * scale), wanted)
        return results


def merge(file: Path, measured: Mapping[str, Any]) -> None:
    """Puts rows beside those that the file has of earlier runs, in the place of the same ones."""
    whole = json.loads(file.read_text()) if file.exists() else {}
    known = whole.setdefault("security", {})
    for part, rows in measured.items():
        known[part] = {**known.get(part, {}), **rows}
    file.write_text(json.dumps(whole, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="small and once: does everything work?")
    parser.add_argument("--part", choices=PARTS, action="append", help="just this part; may be repeated")
    parser.add_argument("--row", default="", metavar="TEXT", help="just the rows that have this in their titles")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="that count (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="S", help="at most (default: %(default)s)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add to what this file of run.py has")
    arguments = parser.parse_args()
    plan = REHEARSAL if arguments.rehearse else Plan(arguments.rounds, arguments.warm_up)
    measured = run(plan, REHEARSAL_SCALE if arguments.rehearse else 1.0, arguments.part or PARTS, arguments.row)
    if arguments.results is not None:
        merge(arguments.results, measured)
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
