"""What can go wrong for a user of the clients, told apart by what to do about it.

| class                | what to do                                                                     |
|----------------------|--------------------------------------------------------------------------------|
| `RetriableError`     | try again: the client did so itself, for as long as it was allowed to          |
| `AbortableError`     | abort the transaction and go on with the next one                              |
| `RestartError`       | close this client and make a new one                                           |
| `ConfigurationError` | change a setting, a right or the input; trying again does not help             |
| `FatalError`         | nothing a program could do about it: the request is refused for good           |
| `UsageError`         | the call is wrong here: the client is closed, of another process, in use       |

Each carries `code`, Kafka's number; `error_codes` has a class for each of them below these.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.errors import ApiError, ConfigError, ErrorCode, OttlaError


class CodedError(ApiError):
    """An error with a code of Kafka's; each class has its own."""

    CODE: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "") -> None:
        super().__init__(self.CODE, message)


class RetriableError(CodedError):
    """It may go better another time."""


class AbortableError(CodedError):
    """The transaction has to be aborted; the next one may go well."""


class RestartError(CodedError):
    """This client cannot go on; a new one can."""


class ConfigurationError(CodedError):
    """Something has to be changed by a person: a setting, a right, the input."""


class FatalError(CodedError):
    """Refused for good."""


class UsageError(OttlaError):
    """The call does not fit the state of the client. Nothing was done."""


class ClosedError(UsageError):
    """The client is closed."""


class ForkedError(UsageError):
    """The client was made by another process: connections and threads do not survive a fork."""


class ConcurrentUseError(UsageError):
    """Two threads use a client at once that is made for one."""


class SettingsError(ConfigError):
    """A setting that is unknown, of the wrong type, out of range or in conflict with another; `name` is its name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class SerializationError(OttlaError):
    """A key or value cannot be turned into bytes, or bytes not into a key or value. The client goes on."""


class TimedOutError(RetriableError):
    """The time for something that was tried again and again is over; `cause` is what was wrong the last time."""

    CODE = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self, timeout_s: float, cause: OttlaError | None = None, what: str = "") -> None:
        why = f": {cause}" if cause is not None else ""
        super().__init__(f"{what + ': ' if what else ''}given up after {timeout_s:g} s{why}")
        self.timeout_s = timeout_s
        self.cause = cause


class BufferExhaustedError(TimedOutError):
    """No room for a record within `max_block_s`: the producer's `buffer_memory` is full of records in flight."""


class DeliveryTimeoutError(TimedOutError):
    """A record was not acknowledged within `delivery_timeout_s`. It may or may not be in the log."""


class TransactionAbortedError(OttlaError):
    """A record was dropped because its transaction was aborted before it was sent."""
