"""SCRAM credentials of users."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bytes, Int8, Int16, Int32, String


@struct
class UserName:
    """An entry of `users` of `DescribeUserScramCredentialsRequest`."""

    name: String


@message(key=50, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class DescribeUserScramCredentialsRequest:
    """Asks which SCRAM credentials users have."""

    users: list[UserName] | None


@struct
class CredentialInfo:
    """An entry of `credential_infos` of `DescribeUserScramCredentialsResult`."""

    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    """An entry of `results` of `DescribeUserScramCredentialsResponse`."""

    user: String
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    credential_infos: list[CredentialInfo]


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations per user, never a secret."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)
    results: list[DescribeUserScramCredentialsResult]


@struct
class ScramCredentialDeletion:
    """An entry of `deletions` of `AlterUserScramCredentialsRequest`."""

    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    """An entry of `upsertions` of `AlterUserScramCredentialsRequest`."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@message(key=51, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class AlterUserScramCredentialsRequest:
    """Sets or deletes SCRAM credentials."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    """An entry of `results` of `AlterUserScramCredentialsResponse`."""

    user: String
    error_code: Int16 = wire(default=0)
    error_message: String | None = wire(default=None)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """The outcome per user."""

    throttle_time_ms: Int32 = wire(default=0)
    results: list[AlterUserScramCredentialsResult]
