"""How tokens of OAUTHBEARER are verified on a listener, as settings say it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ottla.errors import ConfigError

SCHEMES = ("https", "http", "file")
# The handlers of Kafka that verify signatures. Any other is a class that we would have to load.
VERIFYING_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """Where the keys are, and what tokens must say."""

    jwks_url: str
    expected_audience: tuple[str, ...]
    expected_issuer: str | None
    clock_skew_s: int
    subject_claim: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


def check_jwks_url(setting: str, url: str) -> None:
    """ConfigError where keys cannot be had from there."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (parts.scheme == "file") == bool(parts.netloc):
        raise ConfigError(f"{setting}={url}: must be a URL such as https://host/path or file:///path")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{setting}: the URL must not hold a password")
