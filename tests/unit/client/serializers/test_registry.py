"""The registry client: what it asks, how often, and what it does when nobody answers."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import socket

import pytest

from ottla.client.errors import SettingsError
from ottla.client.serializers import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    LookupNeededError,
    Reference,
    RegistryError,
    RegistryUnavailableError,
    Schema,
    SchemaNotFoundError,
    SchemaRegistry,
)
from ottla.client.serializers.registry_http import RegistryHttp, endpoint_of
from ottla.testing.schema_registry import SchemaRegistryServer

TEXT = Schema('"string"')


def record(*fields):
    return Schema(json.dumps({"type": "record", "name": "R", "fields": list(fields)}, separators=(",", ":")))


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}
B_OPTIONAL = {"name": "b", "type": "string", "default": ""}


class HandClock:
    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms

    def steady_ms(self):
        return self.ms


def test_each_thing_is_asked_once(server, registry):
    first = registry.register("s", TEXT)
    assert first == registry.register("s", TEXT)
    assert registry.schema(first.schema_id) == registry.schema(first.schema_id) == TEXT
    assert registry.version("s", 1).schema == registry.version("s", 1).schema == TEXT
    assert registry.registered("s", TEXT).version == registry.registered("s", TEXT).version == 1
    assert server.requests == [
        "POST /subjects/s/versions",
        f"GET /schemas/ids/{first.schema_id}",
        "GET /subjects/s/versions/1",
        "POST /subjects/s",
    ]


def test_the_latest_version_is_asked_again_when_it_is_old(server):
    clock = HandClock()
    registry = SchemaRegistry(server.url, latest_max_age_s=60, clock=clock)
    registry.set_compatibility("NONE")
    registry.register("s", TEXT)
    assert registry.latest("s").version == 1
    registry.register("s", Schema('"long"'))
    clock.ms = 59_999
    assert registry.latest("s").version == 1
    clock.ms = 60_000
    assert registry.latest("s").version == 2


def test_what_is_kept_has_a_limit(server):
    registry = SchemaRegistry(server.url, cache_size=10)
    ids = [
        registry.register(f"s{number}", Schema(f'{{"type":"fixed","name":"F","size":{number}}}')).schema_id
        for number in range(11)
    ]
    server.requests.clear()
    registry.register("s10", Schema('{"type":"fixed","name":"F","size":10}'))
    assert server.requests == []
    registry.register("s0", Schema('{"type":"fixed","name":"F","size":0}'))
    assert server.requests == ["POST /subjects/s0/versions"]
    assert len(set(ids)) == 11
    with pytest.raises(SettingsError, match="at least 10"):
        SchemaRegistry(server.url, cache_size=1)


@pytest.mark.parametrize(
    ("ask", "kind", "code"),
    [
        (lambda registry: registry.latest("none"), SchemaNotFoundError, 40401),
        (lambda registry: registry.version("s", 9), SchemaNotFoundError, 40402),
        (lambda registry: registry.schema(99), SchemaNotFoundError, 40403),
        (lambda registry: registry.registered("s", record(B)), SchemaNotFoundError, 40403),
        (lambda registry: registry.register("s", record(A, B)), IncompatibleSchemaError, 409),
        (lambda registry: registry.register("s", Schema("{")), InvalidSchemaError, 42201),
        (lambda registry: registry.version("s", 0), InvalidSchemaError, 42202),
        (lambda registry: registry.set_compatibility("SOMETIMES"), InvalidSchemaError, 42203),
    ],
)
def test_a_refusal_has_a_class_and_the_registrys_code(registry, ask, kind, code):
    registry.register("s", record(A))
    with pytest.raises(kind) as caught:
        ask(registry)
    assert caught.value.code == code


def test_versions_follow_the_rule_of_their_subject(registry):
    registry.register("s", record(A))
    assert registry.compatibility("s") == "BACKWARD"
    assert not registry.is_compatible("s", record(A, B))
    assert registry.is_compatible("s", record(A, B_OPTIONAL))
    registry.set_compatibility("NONE", "s")
    registry.register("s", record(A, B))
    assert registry.versions("s") == [1, 2]
    assert registry.compatibility() == "BACKWARD"


def test_a_deleted_subject_is_forgotten(registry):
    registry.register("s", TEXT)
    assert registry.subjects() == ["s"]
    assert registry.delete_subject("s") == [1]
    assert registry.subjects() == []
    with pytest.raises(SchemaNotFoundError):
        registry.version("s", 1)
    assert registry.delete_subject("s", permanent=True) == [1]


def test_subjects_may_have_any_name(registry):
    name = "orders/eu?x=1 ü-value"
    registry.register(name, TEXT)
    assert registry.subjects() == [name]
    assert registry.latest(name).schema == TEXT


def test_references_are_kept(registry):
    registry.register("item", TEXT)
    schema = Schema('"bytes"', references=(Reference("Item", "item", 1),))
    assert registry.schema(registry.register("s", schema).schema_id) == schema


def test_failures_that_may_pass_are_retried(server):
    http = RegistryHttp([server.url], sleep=lambda _: None, rng=random.Random(1))
    server.failures = [503, 429, 500]
    assert http.request("GET", ["subjects"]) == []
    server.failures = [503] * 4
    with pytest.raises(RegistryUnavailableError, match="HTTP 503 as the test asked"):
        http.request("GET", ["subjects"])
    server.failures = [400]
    with pytest.raises(RegistryError, match="as the test asked") as caught:
        http.request("GET", ["subjects"])
    assert caught.value.status == 400
    assert len(server.requests) == 9


def unused_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_another_url_is_asked_where_one_does_not_answer_and_stays_the_first(server):
    registry = SchemaRegistry(f"{unused_address()},{server.url}")
    registry.register("s", TEXT)
    assert registry._http._first == 1
    with SchemaRegistryServer() as second:
        both = SchemaRegistry([second.url, server.url])
        second.failures = [503]
        assert both.subjects() == ["s"]
        assert both.subjects() == ["s"]
        assert len(second.requests) == 1


def test_an_error_names_each_url_with_its_cause_and_no_password():
    url = unused_address()
    registry = SchemaRegistry([url.replace("//", "//me:secret@"), unused_address()], retries=0)
    with pytest.raises(RegistryUnavailableError, match=f"{url}: .*refused.*; http.*refused") as caught:
        registry.subjects()
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(registry.settings.basic_auth)


def test_a_registry_that_does_not_answer_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = SchemaRegistry(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(RegistryUnavailableError, match="did not answer GET /subjects"):
            registry.subjects()


@pytest.mark.parametrize(
    "settings",
    [{"basic_auth": "me:secret"}, {"bearer_token": "token"}, {"bearer_token": lambda: "token"}],
    ids=["basic", "bearer", "bearer from a function"],
)
def test_credentials_are_sent(settings):
    basic = settings.get("basic_auth")
    with SchemaRegistryServer(basic_auth=basic, bearer_token=None if basic else "token") as server:
        assert SchemaRegistry(server.url, **settings).subjects() == []
        with pytest.raises(RegistryError, match="Unauthorized") as caught:
            SchemaRegistry(server.url).subjects()
        assert caught.value.status == 401
        if basic:
            assert SchemaRegistry(server.url.replace("//", f"//{basic}@")).subjects() == []


@pytest.mark.parametrize("url", ["", "host:8081", "ftp://host", "http://", "http://host:port"])
def test_what_is_not_a_url_is_refused(url):
    with pytest.raises(SettingsError):
        SchemaRegistry(url)
    with pytest.raises(SettingsError):
        endpoint_of(url)


def test_settings_that_do_not_exist_are_refused(server):
    with pytest.raises(SettingsError, match="timeout_sec"):
        SchemaRegistry(server.url, timeout_sec=3)


def test_on_an_event_loop_nothing_blocks(server, registry):
    async def on_the_loop():
        with pytest.raises(LookupNeededError) as caught:
            registry.register("s", TEXT)
        assert server.requests == []
        await asyncio.to_thread(caught.value.look_up)
        return registry.register("s", TEXT)

    assert asyncio.run(on_the_loop()).schema_id == 1
    assert len(server.requests) == 1


def test_a_failed_look_up_is_raised_where_it_was_wanted_and_stands_for_a_second(server):
    clock = HandClock()
    registry = SchemaRegistry(server.url, clock=clock)

    async def on_the_loop():
        with pytest.raises(LookupNeededError) as caught:
            registry.schema(9)
        await asyncio.to_thread(caught.value.look_up)
        clock.ms = 10_000  # nobody has looked yet: it still stands
        with pytest.raises(SchemaNotFoundError):
            registry.schema(9)
        clock.ms = 10_999
        with pytest.raises(SchemaNotFoundError):
            registry.schema(9)
        clock.ms = 11_000
        with pytest.raises(LookupNeededError):
            registry.schema(9)

    asyncio.run(on_the_loop())
    assert len(server.requests) == 1


def test_an_answer_of_another_program_is_an_error_of_the_registry(server, registry, monkeypatch):
    monkeypatch.setattr(server.registry, "answer", lambda *_: {"welcome": "to nginx"})
    with pytest.raises(RegistryError, match="something else than asked"):
        registry.latest("s")


def test_a_registry_can_be_pickled_without_what_it_knows(server, registry):
    registry.register("s", TEXT)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy.settings == registry.settings
    assert copy.latest("s").schema == TEXT
