"""What strangers send before they are anybody, and what settings and stores hold about them: damaged in any way.

Whatever comes is read or refused by the error that is meant for it, and nothing that was changed logs anybody in.
OTTLA_FUZZ_CASES sets how many damaged inputs each reader gets.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.config.jaas import MODULES, parse_jaas
from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError
from ottla.local_cluster.certificates import Authority
from ottla.net.tls import server_context
from ottla.security.acls import DamagedAclError, Pattern, Resource, decode_acls
from ottla.security.jwt import Expected, InvalidKeysError, InvalidTokenError, parse_keys, verify
from ottla.security.principals import distinguished_name, mapped_name, parse_mapping_rules
from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.oauthbearer import oauthbearer_token, parse_bearer
from ottla.security.sasl.plain import check_plain, plain_token
from ottla.security.sasl.scram import ScramClient, ScramServer, parse_client_first
from ottla.security.scram import DamagedCredentialError, ScramCredential, ScramMechanism, derive
from ottla.testing.certificate_names import UTF8, certificate_of
from ottla.testing.token_issuer import TokenIssuer, jwks

CASES = int(os.environ.get("OTTLA_FUZZ_CASES", "1000"))
MECHANISM = ScramMechanism.SCRAM_SHA_256
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
SALT, NONCE = b"salt", "server"
PIECES = (
    b",",
    b"=",
    b"=2C",
    b"=3D",
    b"\0",
    b"\x01",
    b"n,,",
    b"a=",
    b"r=",
    b"p=",
    b"/",
    b"//",
    b"/*",
    b'"',
    b"\\",
    b"$1",
)
NOW_S = 1_700_000_000


def damaged(data: bytes, random: Random) -> bytes:
    """One to three changes: a bit, a byte, a piece of syntax, a cut, a repetition."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << random.randrange(8)
            case 1:
                changed[at:at] = random.choice(PIECES)
            case 2:
                del changed[at : at + random.randint(1, 8)]
            case 3:
                changed[at:at] = changed[at : at + random.randint(1, 64)]
            case 4:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                del changed[at:]
    return bytes(changed)


def inputs(*good: bytes) -> Iterator[bytes]:
    """Damaged ones, and noise."""
    random = Random(repr(good))
    for _ in range(CASES):
        yield damaged(random.choice(good), random)
    for _ in range(CASES // 4):
        yield random.randbytes(random.choice((0, 1, 2, 3, 10, 100, 1000)))


def test_plain_logs_in_nobody_whose_password_it_does_not_hold() -> None:
    for data in inputs(*(plain_token(*each) for each in PASSWORDS.items())):
        try:
            user = check_plain(data, PASSWORDS)
        except LoginFailed:
            continue
        assert data.split(b"\0")[1:] == [user.encode(), PASSWORDS[user].encode()]


def test_first_messages_of_scram_are_read_or_refused() -> None:
    good = (b"n,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=a=2Cb=3D,r=abc,tokenauth=true", b"n,,m=x,n=a,r=b")
    for data in inputs(*good):
        try:
            first = parse_client_first(data)
        except LoginFailed:
            continue
        assert first.user
        assert "\0" not in first.user
        assert data.decode().endswith(first.bare)


def scram_server(first: bytes) -> ScramServer:
    credential = derive(MECHANISM, PASSWORDS["alice"], SALT)
    return ScramServer(MECHANISM, parse_client_first(first), credential, NONCE)


def test_no_last_message_of_scram_that_was_changed_is_accepted() -> None:
    client = ScramClient(MECHANISM, "alice", PASSWORDS["alice"], "client")
    server = scram_server(client.first)
    good = client.prove(server.challenge)
    client.check(server.finish(good))
    for data in inputs(good):
        if decoded_proof(data) == decoded_proof(good):
            continue  # the last letter of its base64 has bits that nobody reads
        with pytest.raises(LoginFailed):
            server.finish(data)


def decoded_proof(message: bytes) -> tuple[bytes, bytes]:
    before, _, proof = message.partition(b",p=")
    try:
        return before, base64.b64decode(proof, validate=True)
    except binascii.Error:
        return before, b""


def test_what_a_server_says_in_scram_is_read_or_refused() -> None:
    good = scram_server(b"n,,n=alice,r=client").challenge
    for data in inputs(good):
        if b"i=4096" not in data:  # other counts are hashed as often as they say
            continue
        client = ScramClient(MECHANISM, "alice", PASSWORDS["alice"], "client")
        try:
            proof = client.prove(data)
        except LoginFailed:
            continue
        assert data.startswith(b"r=client")
        with pytest.raises(LoginFailed):
            client.check(b"v=" + base64.b64encode(proof[:32]))


def test_bearer_messages_are_read_or_refused() -> None:
    for data in inputs(oauthbearer_token("aaa.bbb.ccc"), b"n,a=alice,\x01auth=Bearer a.b.c\x01key=value\x01\x01"):
        try:
            message = parse_bearer(data)
        except LoginFailed:
            continue
        assert message.token.encode() in data


def test_no_token_that_was_changed_is_accepted() -> None:
    issuer = TokenIssuer()
    keys = parse_keys(jwks(issuer))
    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}
    good = issuer.token(claims)
    assert verify(good, keys, Expected(), NOW_S).subject == "alice"
    signed = good.rpartition(".")[0]
    for data in inputs(good.encode()):
        token = data.decode("latin-1")
        if token.rpartition(".")[0] == signed:
            continue  # the last letter of a signature has bits that nobody reads
        with pytest.raises(InvalidTokenError):
            verify(token, keys, Expected(), NOW_S)


def test_claims_of_all_kinds_are_accepted_or_refused() -> None:
    issuer = TokenIssuer()
    keys = parse_keys(jwks(issuer))
    random = Random(1)
    odd: tuple[Any, ...] = (
        None,
        True,
        -1,
        0,
        1e400,
        2**70,
        "",
        "x",
        " ",
        [],
        ["x"],
        {},
        {"a": 1},
        NOW_S,
        NOW_S + 60,
        "1e9",
    )
    for _ in range(CASES // 10):
        claims = {name: random.choice(odd) for name in ("sub", "iat", "exp", "nbf", "aud", "iss")}
        try:
            identity = verify(issuer.token(claims), keys, Expected(), NOW_S)
        except InvalidTokenError:
            continue
        assert isinstance(claims["sub"], str)
        assert identity.subject == claims["sub"].strip() != ""
        assert identity.expires_s > NOW_S - 31


def test_sets_of_keys_are_read_or_refused() -> None:
    for data in inputs(jwks(TokenIssuer())):
        try:
            assert parse_keys(data)
        except InvalidKeysError:
            continue


@pytest.mark.parametrize("mechanism", MODULES)
def test_jaas_text_is_read_or_refused_without_being_repeated(mechanism: str) -> None:
    good = f'{MODULES[mechanism]} required username="admin" password=\'hunter2-hunter2\' user_a="b\\"c";'.encode()
    reasons = []
    for data in inputs(good):
        try:
            entry = parse_jaas("setting", data.decode("latin-1"), mechanism)
        except ConfigError as error:
            reasons.append(str(error))
            continue
        assert entry.module == MODULES[mechanism]
        assert "hunter2" not in repr(entry)
    assert not [reason for reason in reasons if "hunter2-hunter2" in reason]


def test_mapping_rules_are_read_or_refused_and_map_whatever_comes() -> None:
    good = (b"RULE:^CN=([^,]*),.*$/$1/L,DEFAULT", rb"RULE:^CN=(.*?)\/(.*)$/$2\/$1/U", b"DEFAULT", b"RULE:a(b)?/$1$2/")
    random = Random(2)
    for data in inputs(*good):
        try:
            rules = parse_mapping_rules(data.decode("latin-1"))
        except ConfigError:
            continue
        name = damaged(b"CN=alice,OU=a\\,b,O=Ottla", random).decode("latin-1")
        mapped = mapped_name(name, rules)
        assert mapped is None or isinstance(mapped, str)


def test_subjects_cannot_be_taken_for_others() -> None:
    """Two different subjects never have the same name: what separates parts is escaped inside of them."""
    random = Random(3)
    letters = 'ab,+"\\<>;#= '
    seen: dict[str, object] = {}
    for _ in range(CASES):
        subject = tuple(
            (random.choice((3, 10)), "".join(random.choices(letters, k=random.randint(1, 4))))  # CN, O
            for _ in range(random.randint(1, 2))
        )
        parts = [(f"2.5.4.{number}", UTF8, text.encode()) for number, text in subject]
        name = distinguished_name(certificate_of(*([part] for part in parts)))
        assert seen.setdefault(name, subject) == subject, name


def test_a_damaged_certificate_has_a_name_or_none() -> None:
    good = certificate_of(
        [("2.5.4.3", UTF8, b"alice"), ("1.2.840.113549.1.9.1", 0x16, b"a@b")], [("2.5.4.10", UTF8, b"O")]
    )
    for data in inputs(good):
        with suppress(ValueError):
            assert isinstance(distinguished_name(data), str)


def test_stored_rules_and_credentials_are_read_or_damaged() -> None:
    entry = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}
    for data in inputs(json.dumps({"version": 1, "acls": [entry]}).encode()):
        try:
            decode_acls(Resource.TOPIC, Pattern.LITERAL, "t", data)
        except DamagedAclError:
            continue
    for data in inputs(derive(MECHANISM, "x", SALT).to_text().encode()):
        try:
            ScramCredential.from_text(data.decode("latin-1"))
        except DamagedCredentialError:
            continue


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    files = Authority(tmp_path_factory.mktemp("authority")).create("broker", ("localhost",))
    return Path(files.keystore).read_bytes()


def _as_file(tmp_path: Path) -> Callable[[bytes], TlsConfig]:
    path = tmp_path / "store.pem"

    def config(data: bytes) -> TlsConfig:
        path.write_bytes(data)
        return TlsConfig(keystore_location=str(path))

    return config


def test_files_of_keys_and_certificates_are_read_or_refused(pem: bytes, tmp_path: Path) -> None:
    config = _as_file(tmp_path)
    reasons = []
    random = Random(4)
    for _ in range(CASES // 10):
        data = damaged(pem, random)
        for kind in (config(data), TlsConfig(truststore_location=str(tmp_path / "store.pem"), client_auth="required")):
            try:
                assert isinstance(server_context(kind), ssl.SSLContext)
            except ConfigError as error:
                reasons.append(str(error))
    assert not [reason for reason in reasons if "PRIVATE KEY" in reason]


def test_stores_of_pkcs12_are_read_or_refused(pem: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store.p12"
    random = Random(5)
    for _ in range(CASES // 10):
        path.write_bytes(damaged(b"\x30\x82\x03\xe8\x02\x01\x03\x30\x82" + pem[:200], random))
        with pytest.raises(ConfigError):
            server_context(
                TlsConfig(keystore_type="PKCS12", keystore_location=str(path), keystore_password="hunter2-hunter2")
            )


@pytest.mark.parametrize(
    "data",
    [
        b"n,," + b"m=x," * 100_000 + b"n=a,r=b",
        b"n,,n=" + b"=2C" * 150_000 + b",r=b!",
        b"n,,n=a,r=b" + b",a=" * 150_000,
        b"n,,n=a,r=b" + b",a=b" * 100_000 + b"\0",
    ],
)
def test_long_messages_end(data: bytes) -> None:
    """As long as a frame before a login may be: no expression tries them in more ways than they have letters."""
    for read in (parse_client_first, parse_bearer, scram_server(b"n,,n=alice,r=c").finish):
        try:
            read(data)
        except LoginFailed:
            continue
