"""What a login fails with."""

from __future__ import annotations

from ottla.errors import OttlaError


class LoginFailed(OttlaError):  # noqa: N818 (it is what happened)
    """A login was refused, or cannot be read. `public_reason`: what the peer may know of the reason, if anything."""

    def __init__(self, reason: str, public_reason: str | None = None) -> None:
        super().__init__(reason)
        self.public_reason = public_reason
