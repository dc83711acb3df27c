"""An issuer of signed tokens for tests of OAUTHBEARER: keys, a JWKS, and tokens with any header and claims."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

COORDINATE_BYTES = 32


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def encoded(document: object) -> str:
    return base64url(json.dumps(document).encode())


class TokenIssuer:
    """One key. `RS256` signs with RSA, `ES256` with a key of the curve P-256."""

    def __init__(self, algorithm: str = "ES256", key_id: str = "first") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self.key: Any
        if algorithm == "RS256":
            self.key = rsa.generate_private_key(65537, 2048)
        else:
            self.key = ec.generate_private_key(ec.SECP256R1())

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key, as a JWKS holds it."""
        numbers = self.key.public_key().public_numbers()
        if self.algorithm == "RS256":
            fields = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            fields = {
                "kty": "EC",
                "crv": "P-256",
                "x": base64url(numbers.x.to_bytes(COORDINATE_BYTES)),
                "y": base64url(numbers.y.to_bytes(COORDINATE_BYTES)),
            }
        return {"kid": self.key_id, "use": "sig", **fields, **changes}

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        signed = f"{encoded({'alg': self.algorithm, 'kid': self.key_id, **header})}.{encoded(claims)}"
        return f"{signed}.{base64url(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        if self.algorithm == "RS256":
            return bytes(self.key.sign(data, padding.PKCS1v15(), hashes.SHA256()))
        r, s = decode_dss_signature(self.key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(COORDINATE_BYTES) + s.to_bytes(COORDINATE_BYTES)


def jwks(*issuers: TokenIssuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk() for issuer in issuers]}).encode()


def _number(number: int) -> str:
    return base64url(number.to_bytes((number.bit_length() + 7) // 8))
