"""The store on a real ZooKeeper in trouble: sessions that end, servers that go and come, leaders that are lost."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from ottla.net.ports import free_ports
from ottla.store.api import (
    NODE_BYTES_MAX,
    Check,
    Create,
    NodeExists,
    NotAllowed,
    Put,
    SessionLost,
    SessionState,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from ottla.store.zookeeper import Digest, ZooKeeperOptions, ZooKeeperStore, ZooKeeperTls, connect
from ottla.testing.cluster import Cluster
from ottla.testing.in_zookeeper import end_session
from ottla.testing.waiting import WAIT_S, wait_until

# Sessions outlive what a slow machine takes for a restart; only whoever waits for a dead connection has a short one.
SESSION_TIMEOUT_S = 240.0
SHORT_SESSION_S = 10.0
PATIENCE_S = WAIT_S


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    made = ZooKeeperEnsemble(tmp_path, settings={"maxSessionTimeout": str(int(1000 * SESSION_TIMEOUT_S))})
    made.start()
    yield made
    made.kill()


@asynccontextmanager
async def connected(
    address: str, session_timeout_s: float = SESSION_TIMEOUT_S, **options: Any
) -> AsyncIterator[ZooKeeperStore]:
    store = await connect(
        ZooKeeperOptions(address, session_timeout_s=session_timeout_s, connection_timeout_s=PATIENCE_S, **options)
    )
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], bool], store: ZooKeeperStore) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await store.session.changed.wait(0.05)


async def in_the_end(store: ZooKeeperStore, path: str, data: bytes) -> None:
    """Writes until it is written, as a caller does that reads after each failure."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await store.commit(Put(path, data))
                return
            except StoreUnavailable:
                await store.session.changed.wait(0.05)


def end_session_of(store: ZooKeeperStore, address: str) -> None:
    """Ends the session of a store as its timeout would."""
    end_session(address, *store._kazoo.client_id)


def leader_of(ensemble: ZooKeeperEnsemble) -> ZooKeeperServer:
    """The server that leads, once there is one that says so."""
    leaders: list[ZooKeeperServer] = []

    def is_led() -> bool:
        leaders[:] = [server for server in ensemble.servers if server.is_leader()]
        return len(leaders) == 1

    wait_until(is_led)
    return leaders[0]


def test_a_session_that_ends_takes_its_nodes_along_and_a_new_one_follows(ensemble: ZooKeeperEnsemble) -> None:
    async def play() -> None:
        async with connected(ensemble.connect) as store, connected(ensemble.connect) as other:
            await store.commit(Create("/mine", b"here", ephemeral=True), Create("/kept", b"0"))
            old_id = store.session.session_id
            calls: list[str] = []
            states: list[SessionState] = []
            store.watch_node("/kept", lambda: calls.append("kept"))
            other.watch_node("/mine", lambda: calls.append("mine"))
            await other.get("/mine")

            async def record() -> None:
                while True:
                    await store.session.changed.wait()
                    states.append(store.session.state)

            recorder = asyncio.ensure_future(record())
            await asyncio.to_thread(end_session_of, store, ensemble.connect)
            await until(lambda: store.session.session_id != old_id, store)
            await until(lambda: set(calls) == {"kept", "mine"}, store)
            assert states[-1] is SessionState.CONNECTED
            assert SessionState.LOST in states
            assert await store.get("/mine") is None
            # Watches go on in the new session.
            calls.clear()
            await other.commit(Put("/kept", b"1"))
            await until(lambda: calls == ["kept"], store)
            # A node that the new session makes again is a younger one.
            await store.commit(Create("/mine", ephemeral=True))
            mine = await store.get("/mine")
            assert mine is not None
            assert mine.owner == store.session.session_id
            recorder.cancel()

    asyncio.run(play())


def test_a_server_that_comes_back_finds_its_sessions_and_their_watches_as_they_were(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def play() -> None:
        async with connected(ensemble.connect) as store:
            await store.commit(Create("/mine", ephemeral=True), Create("/counter", b"0"))
            old_id = store.session.session_id
            calls: list[str] = []
            store.watch_node("/counter", lambda: calls.append("called"))
            (server,) = ensemble.servers
            await asyncio.to_thread(server.kill)
            await until(lambda: store.session.state is SessionState.SUSPENDED, store)
            server.launch()
            await asyncio.to_thread(server.wait_ready)
            await in_the_end(store, "/counter", b"1")
            assert store.session.session_id == old_id
            assert await store.get("/mine") is not None
            assert calls, "changes may have been missed, so it is called after a reconnect"
            calls.clear()
            await store.commit(Put("/counter", b"2"))
            assert calls == ["called"]

    asyncio.run(play())


def test_a_request_without_a_connection_ends_in_an_error_that_says_so(ensemble: ZooKeeperEnsemble) -> None:
    async def play() -> None:
        async with connected(ensemble.connect, SHORT_SESSION_S) as store:
            await store.commit(Create("/a"))
            (server,) = ensemble.servers
            await asyncio.to_thread(server.pause)
            try:
                commit = asyncio.ensure_future(store.commit(Put("/a", b"lost?")))
                with pytest.raises(StoreUnavailable, match="unknown"):
                    async with asyncio.timeout(PATIENCE_S):
                        await commit
            finally:
                server.resume()
            # Either outcome is possible, and reading tells which one it was.
            await in_the_end(store, "/a", b"after")
            node = await store.get("/a")
            assert node is not None
            assert node.data == b"after"
            assert node.version in (1, 2)

    asyncio.run(play())


def test_a_store_is_closed_though_nobody_is_there_to_answer_what_is_in_flight(ensemble: ZooKeeperEnsemble) -> None:
    async def play() -> None:
        async with connected(ensemble.connect) as store:
            (server,) = ensemble.servers
            await asyncio.to_thread(server.kill)
            await until(lambda: store.session.state is SessionState.SUSPENDED, store)
            commits = [asyncio.ensure_future(store.commit(Create(f"/{number}"))) for number in range(20)]
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.sleep(0)
                await store.close()
                outcomes = await asyncio.gather(*commits, return_exceptions=True)
            assert all(isinstance(outcome, StoreError) for outcome in outcomes), outcomes

    asyncio.run(play())


def test_an_ensemble_that_loses_its_leader_goes_on(tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path, size=3)
    ensemble.start()

    async def play() -> None:
        async with connected(ensemble.connect) as store:
            await store.commit(Create("/mine", ephemeral=True), Create("/a", b"0"))
            old_id = store.session.session_id
            for round_number in (1, 2):
                leader = await asyncio.to_thread(leader_of, ensemble)
                await asyncio.to_thread(leader.kill)
                await in_the_end(store, "/a", str(round_number).encode())
                leader.launch()
                await asyncio.to_thread(leader.wait_ready)
            assert store.session.session_id == old_id, "the new leader gave every session its time again"
            assert await store.get("/mine") is not None

    try:
        asyncio.run(play())
    finally:
        ensemble.kill()


def test_nobody_there_is_told_with_the_address_and_the_setting() -> None:
    async def play() -> None:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/x.*zookeeper\.connect"):
            await connect(ZooKeeperOptions("127.0.0.1:1/x", connection_timeout_s=0.5))

    asyncio.run(play())


@pytest.mark.parametrize("is_there", ["nothing", "the first of them", "all of them"])
def test_a_path_of_several_names_is_made_and_is_the_root_of_all(connect: str, is_there: str) -> None:
    """As `zookeeper.connect` may end in /kafka/production."""
    server, _, name = connect.partition("/")
    above = {"nothing": "", "the first of them": f"/{name}", "all of them": f"/{name}/a/b"}[is_there]

    async def play() -> None:
        async with connected(server) as whole:
            for end in [end for end in range(1, len(above) + 1) if above[end : end + 1] in ("", "/")]:
                await whole.commit(Create(above[:end]))
            async with connected(f"{connect}/a/b") as store:
                changes: list[str] = []
                store.watch_children("/", lambda: changes.append("/"))
                (path,) = await store.commit(Create("/n-", b"1", sequential=True))
                assert path == "/n-0000000000"
                await store.commit(Check(path, 0), Put(path, b"2", 0), Create("/mine", ephemeral=True))
                assert await store.children("/") == ["mine", "n-0000000000"]
                node = await store.get(path)
                assert node is not None
                assert node.data == b"2"
                assert await whole.children(f"/{name}/a/b") == ["mine", "n-0000000000"]
                assert await whole.children(f"/{name}/a") == ["b"]
                assert changes
                with pytest.raises(NodeExists, match="/mine"):
                    await store.commit(Create("/mine"))

    asyncio.run(play())


def test_a_closed_session_has_no_nodes_at_once(ensemble: ZooKeeperEnsemble) -> None:
    async def play() -> None:
        async with connected(ensemble.connect) as other:
            async with connected(ensemble.connect) as store:
                await store.commit(Create("/mine", ephemeral=True))
            assert await other.get("/mine") is None
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(_after_the_end(other, ensemble), PATIENCE_S)

    asyncio.run(play())


async def _after_the_end(store: ZooKeeperStore, ensemble: ZooKeeperEnsemble) -> None:
    """Commits until the session has ended under them."""
    await asyncio.to_thread(end_session_of, store, ensemble.connect)
    while True:
        try:
            await store.commit(Create("/n", sequential=True))
        except SessionLost:
            raise
        except StoreUnavailable:
            await asyncio.sleep(0)


JAAS = """
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_ottla="secret" user_mallory="guess";
};
"""


def test_nodes_are_made_for_their_creator_where_acls_are_on(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS)
    ensemble = ZooKeeperEnsemble(
        tmp_path / "data",
        settings={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    ensemble.start()

    async def play() -> None:
        async with connected(ensemble.connect, digest=Digest("ottla", "secret"), set_acl=True) as store:
            await store.commit(
                Create("/config"), Create("/config/users"), Create("/config/users/alice", b"key"), Create("/consumers")
            )
            await store.commit(Put("/config", b"mine"))
            with pytest.raises(StoreUnavailable):
                async with connected(ensemble.connect, digest=Digest("ottla", "wrong")) as wrong:
                    await wrong.get("/config")
            async with connected(ensemble.connect, digest=Digest("mallory", "guess")) as mallory:
                assert await mallory.get("/config") is not None, "everybody may read it"
                for refused in (mallory.commit(Put("/config", b"")), mallory.get("/config/users/alice")):
                    with pytest.raises(NotAllowed, match="ACL"):
                        await refused
                await mallory.commit(Put("/consumers", b"open to all"))

    try:
        asyncio.run(play())
        anonymous = KazooClient(ensemble.connect)
        anonymous.start()
        with pytest.raises(NoAuthError):
            anonymous.set("/config", b"")
        anonymous.stop()
        anonymous.close()
    finally:
        ensemble.kill()


def test_a_session_over_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    certificates = _certificates(tmp_path)
    (port,) = free_ports(1)
    ensemble = ZooKeeperEnsemble(
        tmp_path / "data",
        settings={
            "secureClientPort": str(port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(certificates / "server.pem"),
            "ssl.trustStore.location": str(certificates / "ca.pem"),
            "ssl.clientAuth": "need",
        },
    )
    ensemble.start()
    client = ZooKeeperTls(
        str(certificates / "ca.pem"), str(certificates / "client.pem"), str(certificates / "client.pem")
    )

    async def play() -> None:
        async with connected(f"127.0.0.1:{port}", tls=client) as store:
            await store.commit(Create("/a", b"secret"))
            assert await store.get("/a") is not None
        for stranger in (None, ZooKeeperTls(str(certificates / "ca.pem"))):
            with pytest.raises(StoreUnavailable):
                await connect(ZooKeeperOptions(f"127.0.0.1:{port}", connection_timeout_s=2.0, tls=stranger))

    try:
        asyncio.run(play())
    finally:
        ensemble.kill()


def test_a_broker_takes_tls_its_login_and_acls_from_its_settings(tmp_path: Path) -> None:
    certificates = _certificates(tmp_path)
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS)
    (port,) = free_ports(1)
    ensemble = ZooKeeperEnsemble(
        tmp_path / "data",
        settings={
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "secureClientPort": str(port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(certificates / "server.pem"),
            "ssl.trustStore.location": str(certificates / "ca.pem"),
            "ssl.clientAuth": "need",
        },
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    ensemble.start()
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(certificates / "ca.pem"),
        "zookeeper.ssl.keystore.location": str(certificates / "client.pem"),
        "zookeeper.sasl.username": "ottla",
        "zookeeper.sasl.password": "secret",
        "zookeeper.set.acl": "true",
    }
    anonymous = KazooClient(ensemble.connect)
    try:
        anonymous.start()
        with Cluster(f"127.0.0.1:{port}/secure", size=1, settings=settings):
            acls, _ = anonymous.get_acls("/secure/brokers/ids/1")
            assert {(acl.id.scheme, acl.id.id) for acl in acls} >= {("sasl", "ottla"), ("world", "anyone")}
            with pytest.raises(NoAuthError):
                anonymous.delete("/secure/brokers/ids/1")
    finally:
        anonymous.stop()
        anonymous.close()
        ensemble.kill()


def _certificates(directory: Path) -> Path:
    """A certificate authority, and a certificate with its key for a server and for a client on this machine."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca"),
        *("-keyout", "ca.key", "-out", "ca.pem"),
    )
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl(
            *(
                "req",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-subj",
                f"/CN={name}",
                "-keyout",
                f"{name}.key",
                "-out",
                f"{name}.csr",
            )
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "2", "-extfile", "names", "-out", f"{name}.crt"),
        )
        (directory / f"{name}.pem").write_text(
            (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        )
    return directory


def test_a_commit_that_is_larger_than_a_request_may_be_costs_no_connection(shared_ensemble: ZooKeeperEnsemble) -> None:
    async def main() -> None:
        async with connected(f"{shared_ensemble.connect}/large") as store:
            changes = store.session.changed.count
            await store.commit(Create("/largest", bytes(NODE_BYTES_MAX)))
            much = bytes(NODE_BYTES_MAX * 2 // 3)
            with pytest.raises(TooLarge):
                await store.commit(Create("/a", much), Create("/b", much))
            many = [Create(f"/{number:07}", b"data") for number in range(6000)]
            await store.commit(*many)
            with pytest.raises(TooLarge):
                await store.commit(*(Create(f"/{number:01000}") for number in range(1100)))
            assert len(await store.children("/")) == 6001
            assert store.session.changed.count == changes

    asyncio.run(main())
