"""SCRAM against the vectors of its RFC, both of our sides against each other, and what an attacker would send."""

from __future__ import annotations

import base64

import pytest

from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.scram import (
    CLIENT_ITERATIONS_MAX,
    ScramClient,
    ScramServer,
    parse_client_first,
)
from ottla.security.scram import (
    DamagedCredentialError,
    ScramCredential,
    ScramMechanism,
    derive,
    fake_credential,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
# RFC 7677, section 3: user "user", password "pencil".
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def server_for(first: bytes, credential: ScramCredential | None = None) -> ScramServer:
    return ScramServer(
        SHA_256, parse_client_first(first), credential or derive(SHA_256, "pencil", SALT, 4096), SERVER_NONCE
    )


def test_the_server_says_what_the_rfc_says() -> None:
    server = server_for(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert server.challenge == SERVER_FIRST
    assert server.finish(CLIENT_FINAL) == SERVER_FINAL


def test_the_client_says_what_the_rfc_says_and_knows_its_server() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.first == f"n,,n=user,r={CLIENT_NONCE}".encode()
    assert client.prove(SERVER_FIRST) == CLIENT_FINAL
    client.check(SERVER_FINAL)
    with pytest.raises(LoginFailed):
        client.check(SERVER_FINAL[:-4] + b"AAA=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "CN=x,O=y"])
def test_our_sides_understand_each_other(mechanism: ScramMechanism, user: str) -> None:
    client = ScramClient(mechanism, user, "pässword", "abc")
    first = parse_client_first(client.first)
    assert first.user == user
    server = ScramServer(mechanism, first, derive(mechanism, "pässword", b"salt", 4096), "xyz")
    client.check(server.finish(client.prove(server.challenge)))


def test_a_wrong_password_fails_at_the_second_message_and_so_does_an_unknown_user() -> None:
    client = ScramClient(SHA_256, "user", "pen", "abc")
    for credential in (derive(SHA_256, "pencil", SALT), fake_credential(SHA_256, b"secret", "user")):
        server = server_for(client.first, credential)
        with pytest.raises(LoginFailed):
            server.finish(client.prove(server.challenge))


def test_the_salt_of_an_unknown_user_is_the_same_each_time() -> None:
    assert fake_credential(SHA_256, b"s", "bob") == fake_credential(SHA_256, b"s", "bob")
    assert fake_credential(SHA_256, b"s", "bob").salt != fake_credential(SHA_256, b"s", "eve").salt


@pytest.mark.parametrize(
    "nonce", ["other", SERVER_NONCE, "x" + CLIENT_NONCE + SERVER_NONCE, CLIENT_NONCE, CLIENT_NONCE * 2 + SERVER_NONCE]
)
def test_cve_2024_56128_the_nonce_of_the_last_message_is_that_of_this_login(nonce: str) -> None:
    """Whoever knows the keys can make a proof that fits any nonce."""
    first = f"n,,n=user,r={CLIENT_NONCE}"
    server = server_for(first.encode())
    final = f"c=biws,r={nonce}"
    message = f"n=user,r={CLIENT_NONCE},{SERVER_FIRST.decode()},{final}".encode()
    from ottla.security.scram import salted_password

    client_key = SHA_256.hmac(salted_password(SHA_256, "pencil", SALT, 4096), b"Client Key")
    signature = SHA_256.hmac(SHA_256.hash(client_key), message)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    with pytest.raises(LoginFailed, match="nonce"):
        server.finish(f"{final},p={proof}".encode())


def test_cve_2017_12610_nobody_becomes_another_by_the_authorization_id() -> None:
    client = ScramClient(SHA_256, "bob", "pencil", "abc")
    first = client.first.replace(b"n,,", b"n,a=admin,")
    server = server_for(first)
    with pytest.raises(LoginFailed, match="admin"):
        server.finish(client.prove(server.challenge))
    own = server_for(client.first.replace(b"n,,", b"n,a=bob,"))
    own.finish(client.prove(own.challenge))


@pytest.mark.parametrize(
    "first",
    [b"", b"y,,n=u,r=x", b"p=tls-unique,,n=u,r=x", b"n,,n=u", b"n,,n=,r=x", b"n,,n=a=b,r=x", b"\xff", b"n,,n=u,r="],
)
def test_a_first_message_that_breaks_the_rules(first: bytes) -> None:
    with pytest.raises(LoginFailed):
        parse_client_first(first)


@pytest.mark.parametrize("iterations", [1, 4095, CLIENT_ITERATIONS_MAX + 1, 999_999_999])
def test_cve_2026_10143_a_server_does_not_choose_how_long_its_client_hashes(iterations: int) -> None:
    client = ScramClient(SHA_256, "user", "pencil", "abc")
    with pytest.raises(LoginFailed, match="iterations"):
        client.prove(f"r=abcd,s=YWJj,i={iterations}".encode())


def test_a_credential_is_written_as_kafka_writes_it_and_is_never_shown() -> None:
    credential = derive(SHA_256, "pencil", SALT, 4096)
    text = credential.to_text()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert ScramCredential.from_text(text) == credential
    assert ScramCredential.from_text(",".join(reversed(text.split(",")))) == credential
    assert repr(credential) == "ScramCredential(iterations=4096)"


@pytest.mark.parametrize(
    "text", ["", "salt=YQ==", "salt=!,stored_key=YQ==,server_key=YQ==,iterations=1", "a=b,c=d,e=f,g=h"]
)
def test_a_damaged_credential_is_an_error(text: str) -> None:
    with pytest.raises(DamagedCredentialError):
        ScramCredential.from_text(text)
