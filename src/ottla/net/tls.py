"""TLS: contexts from settings, and the transport of a connection that encrypts.

OpenSSL encrypts from memory to memory, and the bytes are received and sent here, many records at once: some clients
make a record of every hundred bytes, and to read each of them from the socket cost ten times as much as to decrypt it.
What was received and nobody has taken yet is invisible to the loop: see `has_pending`. A handshake is taken on with
each read until it is done; it waits for bytes of the peer and never for room to send, as its messages are smaller than
a socket's buffer.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.config.tls import TlsConfig
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
CIPHERED_BYTES = 64 * 1024  # received, or encrypted, at once: of every connection in use
SEND_BYTES_MAX = 1024 * 1024  # encrypted before others get their turn
JOINED_BYTES_MAX = 64 * 1024  # of small parts that are encrypted together
RECORD_BYTES_MAX = 17 * 1024  # about: encrypted
# Received without a byte of data in it: changes of keys cost us more than the peer, and no client has use for so many.
EMPTY_BYTES_MAX = 64 * 1024
HANDSHAKE_BYTES_MAX = 256 * 1024  # of a peer; OpenSSL takes 100 KiB of certificates
ANSWERS_BYTES_MAX = 256 * 1024  # encrypted for a peer that does not read, and still sends
FULL = 16  # one part in so many of what was received has to be data, for more to be received in the same turn

_NO_JKS = (
    "key stores of type JKS are not read: convert it with `keytool -importkeystore -srckeystore old.jks "
    "-destkeystore new.p12 -deststoretype PKCS12`, or give PEM files, and set the type"
)


# -- contexts ----------------------------------------------------------------------------------------------------------


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """For connections that peers make; ConfigError where the settings or their files are no good."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, config)
    context.verify_mode = CLIENT_AUTH[config.client_auth]
    if config.client_auth != "none":
        _load_trusted(context, config)
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """For connections that we make."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, config)
    context.check_hostname = bool(config.endpoint_identification_algorithm)
    _load_trusted(context, config)
    return context


def _context(side: int, config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    unknown = [name for name in config.enabled_protocols if name not in VERSIONS]
    if unknown:
        raise ConfigError(f"ssl.enabled.protocols: {', '.join(unknown)} is not served; use TLSv1.2 and TLSv1.3")
    versions = sorted(VERSIONS[name] for name in config.enabled_protocols) or sorted(VERSIONS.values())
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    older = [_openssl_name(name) for name in config.cipher_suites if not _is_of_1_3(name)]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.cipher.suites: none of them is known: {', '.join(config.cipher_suites)}") from error
    if config.has_key:
        _load_key(context, config)
    return context


def _is_of_1_3(name: str) -> bool:
    return name.startswith("TLS_") and "_WITH_" not in name


def _openssl_name(name: str) -> str:
    """Java's name of a cipher suite in OpenSSL's spelling."""
    if "_WITH_" not in name:
        return name
    short = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_128", "AES128").replace("AES_256", "AES256")
    return short.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")


def _load_key(context: ssl.SSLContext, config: TlsConfig) -> None:
    kind = config.keystore_type
    location = config.keystore_location
    pem = b""
    try:
        if kind == "PKCS12":
            _require(location is not None, "ssl.keystore.location: a key store of type PKCS12 is a file")
            assert location is not None
            pem = _pem_of_pkcs12(location, config.keystore_password)
            with _as_file(pem) as path:
                context.load_cert_chain(path)
        elif kind != "PEM":
            raise ConfigError(f"ssl.keystore.type={kind}: {_NO_JKS}")
        elif location is not None:
            _require(
                config.keystore_password is None, "ssl.keystore.password: a PEM file has none; see ssl.key.password"
            )
            pem = b"\n".join(Path(each).read_bytes() for each in (location, config.key_location) if each is not None)
            context.load_cert_chain(location, config.key_location, _password(config.key_password))
        else:
            _require(
                config.keystore_certificate_chain is not None, "ssl.keystore.key needs ssl.keystore.certificate.chain"
            )
            pem = f"{config.keystore_key}\n{config.keystore_certificate_chain}\n".encode()
            with _as_file(pem) as path:
                context.load_cert_chain(path, password=_password(config.key_password))
    except (OSError, ValueError) as error:  # among them ssl.SSLError, which says little and no secret
        where = location or "ssl.keystore.key"
        reason = _what_is_wrong(error, pem, config.key_password) if isinstance(error, ssl.SSLError) else _plain(error)
        raise ConfigError(f"{where}: the key and its certificates cannot be used: {reason}") from error


def _what_is_wrong(error: ssl.SSLError, pem: bytes, password: str | None) -> str:
    """With a key and its certificates: OpenSSL says 'PEM lib' of nearly everything."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the first certificate; a broker's own certificate stands first"
    if b"PRIVATE KEY-----" not in pem:
        return "there is no private key; ssl.keystore.location needs a file with the key and its certificates"
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        return "there is no certificate beside the key"
    if b"ENCRYPTED" in pem:
        return (
            "the key is encrypted: set ssl.key.password"
            if password is None
            else "ssl.key.password does not open the key"
        )
    return f"the key or a certificate is damaged ({_plain(error)})"


def _load_trusted(context: ssl.SSLContext, config: TlsConfig) -> None:
    location = config.truststore_location
    try:
        if config.truststore_certificates is not None:
            context.load_verify_locations(cadata=config.truststore_certificates)
        elif location is None:
            context.load_default_certs()
        elif config.truststore_type == "PKCS12":
            context.load_verify_locations(cadata=_pem_of_pkcs12(location, config.truststore_password).decode())
        elif config.truststore_type != "PEM":
            raise ConfigError(f"ssl.truststore.type={config.truststore_type}: {_NO_JKS}")
        else:
            _require(config.truststore_password is None, "ssl.truststore.password: a PEM file has none")
            context.load_verify_locations(location)
    except (OSError, ValueError) as error:
        where = location or "ssl.truststore.certificates"
        reason = _plain(error)
        if reason == "NO_CERTIFICATE_OR_CRL_FOUND":
            reason = "there is no certificate in it"
        raise ConfigError(f"{where}: the trusted certificates cannot be used: {reason}") from error


def _pem_of_pkcs12(location: str, password: str | None) -> bytes:
    """What a PKCS12 file holds, as PEM: the key if there is one, and all certificates."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{location}: to read PKCS12, cryptography is needed: pip install 'ottla[security]', or give PEM files"
        ) from error
    with open(location, "rb") as file:
        store = load_pkcs12(file.read(), None if password is None else password.encode())
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own = [] if store.cert is None else [store.cert]
    parts += [one.certificate.public_bytes(Encoding.PEM) for one in (*own, *store.additional_certs)]
    return b"".join(parts)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to read the content from, as OpenSSL wants one; where the system can, it is never on a disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-key")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(content)
            file.flush()
            yield file.name


def _password(text: str | None) -> str:
    """Never None: OpenSSL would ask for it on the terminal."""
    return text or ""


def _plain(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


# -- the transport -----------------------------------------------------------------------------------------------------


class Tls:
    """The socket of a peer that connected, encrypted. What cannot be done now is a BlockingIOError.

    What was encrypted has its place in the stream: where the socket has no room for it, the same bytes have to be
    offered again, and are sent as they were encrypted.
    """

    __slots__ = (
        "_empty_bytes",
        "_handshake_bytes",
        "_incoming",
        "_is_drained",
        "_is_open",
        "_offered",
        "_outgoing",
        "_receive_bytes_max",
        "_received_bytes",
        "_socket",
        "_tls",
        "_unsent",
    )

    can_sendfile = False
    can_shortcut = False

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.getpeername()  # an OSError where there is none any more
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._is_drained = True  # nothing whole is left of what was received
        self._receive_bytes_max = CIPHERED_BYTES
        self._received_bytes = 0  # the last time
        self._empty_bytes = 0  # received since there was data in it
        self._handshake_bytes = 0  # received of it
        self._unsent = memoryview(b"")  # encrypted
        self._offered = 0  # bytes of the caller that are encrypted and not yet sent

    @property
    def socket(self) -> socket.socket:
        return self._socket

    @property
    def is_shaking_hands(self) -> bool:
        return not self._is_open

    @property
    def has_pending(self) -> bool:
        return self._is_open and not self._is_drained and (self._tls.pending() > 0 or self._incoming.pending > 0)

    def _shake_hands(self) -> None:
        while not self._is_open:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError as error:
                self._flush()
                if not self._receive():
                    raise BlockingIOError from error
                self._handshake_bytes += self._received_bytes
                if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                    raise ConnectionAbortedError(
                        errno.ECONNABORTED, f"a handshake of more than {HANDSHAKE_BYTES_MAX} bytes"
                    ) from error
            except ssl.SSLError as error:
                with suppress(OSError):
                    self._flush()  # what is wrong, for the peer
                if isinstance(error, ssl.SSLEOFError):
                    raise ConnectionResetError(
                        errno.ECONNRESET, "the peer left in the middle of the handshake"
                    ) from error
                raise
            else:
                self._is_open = True
        self._flush()

    def _receive(self) -> bool:
        """Takes what has arrived; False where nothing has."""
        try:
            data = self._socket.recv(self._receive_bytes_max)
        except (BlockingIOError, InterruptedError):
            self._is_drained = True
            return False
        self._is_drained = False
        self._received_bytes = len(data)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return True

    def recv_into(self, buffer: Buffer) -> int:
        self._shake_hands()
        count = received_at = self._received_bytes = 0
        has_ended = False
        with memoryview(buffer) as whole:
            while count < len(whole) and not has_ended:
                try:
                    with whole[count:] as rest:
                        read: Any = self._tls.read(len(rest), rest)  # into a buffer: how many bytes
                except ssl.SSLWantReadError:
                    if not self._receive_more(count - received_at):
                        break
                    received_at = count
                except ssl.SSLEOFError:  # without a goodbye
                    has_ended = True
                else:
                    has_ended = read == 0
                    count += read
                    self._empty_bytes = 0
        self._flush_answers()
        if count == 0 and not has_ended:
            raise BlockingIOError
        return count

    def _receive_more(self, data_bytes: int) -> bool:
        """`data_bytes`: of what was received last, in this turn. Where that was hardly anything, others go first."""
        if self._received_bytes:
            is_hardly_data = data_bytes * FULL < self._received_bytes
            self._receive_bytes_max = RECORD_BYTES_MAX if is_hardly_data else CIPHERED_BYTES
            if is_hardly_data:
                return False
        if not self._receive():
            return False
        self._empty_bytes += self._received_bytes
        if self._empty_bytes > EMPTY_BYTES_MAX:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{self._empty_bytes} bytes of TLS without data in them")
        return True

    def _flush_answers(self) -> None:
        """What TLS itself has to say: to changes of keys."""
        if self._outgoing.pending:
            self._flush()
            if len(self._unsent) + self._outgoing.pending > ANSWERS_BYTES_MAX:
                raise ConnectionAbortedError(errno.ECONNABORTED, "changes of keys by a peer that reads no answer")

    def send(self, data: Buffer) -> int:
        sent = 0
        with memoryview(data) as whole:
            while sent < min(len(whole), SEND_BYTES_MAX):
                if not self._offered:
                    with whole[sent : sent + CIPHERED_BYTES] as piece:
                        self._offered = self._encrypt(piece)
                if not self._flush():
                    if sent == 0:
                        raise BlockingIOError
                    break
                sent += self._offered
                self._offered = 0
        return sent

    def _encrypt(self, piece: memoryview) -> int:
        count = 0
        while count < len(piece):
            with piece[count:] as rest:
                count += self._tls.write(rest)  # a record of 16 KB at most
        return count

    def _flush(self) -> bool:
        """Sends what is encrypted; False where the socket has no room for all of it."""
        unsent = self._unsent
        while unsent or self._outgoing.pending:
            unsent = unsent or memoryview(self._outgoing.read())
            try:
                unsent = unsent[self._socket.send(unsent) :]
            except (BlockingIOError, InterruptedError):
                self._unsent = unsent
                return False
        self._unsent = memoryview(b"")
        return True

    def sendmsg(self, parts: Iterable[Buffer]) -> int:
        together: list[Any] = []
        size = 0
        for part in parts:
            together.append(part)
            size += memoryview(part).nbytes
            if size >= JOINED_BYTES_MAX:
                break
        return self.send(together[0] if len(together) == 1 else b"".join(together))

    def sendfile(self, descriptor: int, position: int, count: int) -> int:
        raise AssertionError("the kernel does not encrypt")

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the peer, which was checked, in DER; None where it has shown none."""
        return self._tls.getpeercert(binary_form=True) if self._tls.getpeercert() else None

    def close(self) -> None:
        if self._is_open:
            with suppress(OSError, ValueError):
                self._tls.unwrap()  # says goodbye, and does not wait for an answer
            with suppress(OSError):
                self._flush()
        self._socket.close()
