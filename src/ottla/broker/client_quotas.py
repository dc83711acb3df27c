"""What limits clients on this broker: which quota holds for whom, what has been used of it, and how long to wait.

Only peers with a limit are measured: a broker without quotas asks nothing here, and neither do clients without. What is
measured is kept for each scope of a quota (a user, a client id, both), forgotten after an hour without use, and bounded
in number: client ids are whatever clients say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    NO_LIMITS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaLimits,
    Scope,
)
from ottla.security.rates import SECOND_MS, Rate, TokenBucket, Windows

IDLE_MS_MAX: Final = 3_600_000  # after which what was used of a quota is forgotten, as in Kafka
METERS_MAX: Final = 20_000
CLIENTS_MAX: Final = 20_000  # users with client ids whose limits are remembered
PERCENT_PER_NS: Final = 100 / 1e9  # of a second's time

Charge = Callable[[int], None]


def free_of_charge(partition_count: int) -> None:
    """Of whoever may change as much of the cluster as he likes."""


class MeteredRate:
    """One limit on a rate, and what has been used of it."""

    __slots__ = ("_quotas", "_rate", "limit")

    def __init__(self, quotas: ClientQuotas, rate: Rate, limit: float) -> None:
        self._quotas = quotas
        self._rate = rate
        self.limit = limit

    def record(self, amount: float) -> int:
        """So much was used: how long to wait, in milliseconds."""
        now_ms, windows = self._quotas.now_ms(), self._quotas.windows
        self._rate.record(amount, now_ms, windows)
        return self._rate.delay_ms(self.limit, now_ms, windows)

    def delay_ms(self) -> int:
        """How long to wait for what was used before."""
        return self._rate.delay_ms(self.limit, self._quotas.now_ms(), self._quotas.windows)

    def take_back(self, amount: float) -> None:
        self._rate.record(-amount, self._quotas.now_ms(), self._quotas.windows)

    @property
    def window_max(self) -> float:
        """The most that a single request may use."""
        return self.limit * self._quotas.windows.full_s


class MeteredMutations:
    """The limit on changes of the cluster."""

    __slots__ = ("_bucket", "_limit", "_quotas")

    def __init__(self, quotas: ClientQuotas, bucket: TokenBucket, limit: float) -> None:
        self._quotas = quotas
        self._bucket = bucket
        self._limit = limit

    def delay_ms(self) -> int:
        return self._bucket.delay_ms(self._limit, self._quotas.now_ms(), self._quotas.mutation_windows)

    def spend(self, partition_count: int) -> None:
        self._bucket.spend(partition_count, self._limit, self._quotas.now_ms(), self._quotas.mutation_windows)


class ClientLimits:
    """What limits one client id of one user; None where nothing does."""

    __slots__ = ("fetch", "mutations", "produce", "request", "request_delay_ms_max")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self.produce = quotas.metered(PRODUCER_BYTE_RATE, user, client_id)
        self.fetch = quotas.metered(CONSUMER_BYTE_RATE, user, client_id)
        self.request = quotas.metered(REQUEST_PERCENTAGE, user, client_id)
        self.request_delay_ms_max = quotas.windows.size_ms
        self.mutations = quotas.metered_mutations(user, client_id)

    @property
    def has_any(self) -> bool:
        return not (self.produce is self.fetch is self.request is None and self.mutations is None)


class RequestQuota:
    """One request of a client that is limited: what it used, and for how long its connection is not read afterwards."""

    __slots__ = ("_limits", "_request_bytes", "thread_ns", "throttle_ms")

    def __init__(self, limits: ClientLimits, request_bytes: int) -> None:
        self._limits = limits
        self._request_bytes = request_bytes
        self.thread_ns = 0  # the time of threads that worked on it
        self.throttle_ms = 0

    def _throttle(self, delay_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, delay_ms)

    def produced(self) -> None:
        """The request was a Produce, and has been carried out."""
        if self._limits.produce is not None:
            self._throttle(self._limits.produce.record(self._request_bytes))

    def spent(self, time_ns: int) -> None:
        """The loop worked on it for so long."""
        if self._limits.request is not None:
            delay_ms = self._limits.request.record((time_ns + self.thread_ns) * PERCENT_PER_NS)
            self._throttle(min(delay_ms, self._limits.request_delay_ms_max))

    @property
    def fetch_bytes_max(self) -> float:
        """The most that a single response may hold: more would never be allowed."""
        return float("inf") if self._limits.fetch is None else self._limits.fetch.window_max

    def may_fetch(self, size_bytes: int) -> bool:
        """Whether so many bytes may be sent now; they count as sent then.

        A batch that is larger than what may be sent at once would never be allowed: it is sent when nothing is owed,
        and waited for afterwards.
        """
        fetch = self._limits.fetch
        if fetch is None:
            return True
        is_free = not fetch.delay_ms()
        delay_ms = fetch.record(size_bytes)
        if not delay_ms:
            return True
        self._throttle(delay_ms)
        if is_free and size_bytes > fetch.window_max:
            return True
        fetch.take_back(size_bytes)
        return False

    def charge(self, *, strict: bool) -> Charge:
        """What changes of the cluster are charged with. `strict`: whoever has overdrawn is refused (KIP-599)."""
        mutations = self._limits.mutations
        if mutations is None:
            return free_of_charge

        def charge(partition_count: int) -> None:
            delay_ms = mutations.delay_ms() if strict else 0
            if not delay_ms:
                mutations.spend(partition_count)
                self._throttle(0 if strict else mutations.delay_ms())
                return
            self._throttle(delay_ms)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

        return charge


class ClientQuotas:
    """Owns what has been used of every quota."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        """`now_ms`: of a clock that does not jump."""
        self.windows = Windows(config.quota_window_num, config.quota_window_size_seconds * SECOND_MS)
        self.mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * SECOND_MS
        )
        self.now_ms = now_ms
        self.limits = NO_LIMITS
        self._rates: dict[tuple[str, Scope], Rate] = {}
        self._buckets: dict[Scope, TokenBucket] = {}
        self._known: dict[tuple[str, str | None], ClientLimits | None] = {}

    def take(self, limits: QuotaLimits) -> None:
        """Other quotas hold from now on; what has been used stays used."""
        self.limits = limits
        self._known.clear()

    def of(self, principal: str, client_id: str | None) -> ClientLimits | None:
        """What limits a client; None where nothing does."""
        try:
            return self._known[principal, client_id]
        except KeyError:
            pass
        if len(self._known) >= CLIENTS_MAX:
            self._known.clear()
        found = ClientLimits(self, principal.partition(":")[2], client_id or "")
        limits = self._known[principal, client_id] = found if found.has_any else None
        return limits

    def metered(self, key: str, user: str, client_id: str) -> MeteredRate | None:
        limit = self.limits.limit_of(key, user, client_id)
        if limit is None:
            return None
        rate = self._rates.get((key, limit.scope))
        if rate is None:
            _make_room(self._rates)
            rate = self._rates[key, limit.scope] = Rate()
            rate.used_ms = self.now_ms()
        return MeteredRate(self, rate, limit.value)

    def metered_mutations(self, user: str, client_id: str) -> MeteredMutations | None:
        limit = self.limits.limit_of(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(limit.scope)
        if bucket is None:
            _make_room(self._buckets)
            bucket = self._buckets[limit.scope] = TokenBucket()
            bucket.used_ms = self.now_ms()
        return MeteredMutations(self, bucket, limit.value)

    @property
    def meter_count(self) -> int:
        return len(self._rates) + len(self._buckets)

    async def expire(self) -> None:
        """Forgets what nobody has used for long."""
        oldest_ms = self.now_ms() - IDLE_MS_MAX
        count = self.meter_count
        self._rates = {key: rate for key, rate in self._rates.items() if rate.used_ms > oldest_ms}
        self._buckets = {scope: bucket for scope, bucket in self._buckets.items() if bucket.used_ms > oldest_ms}
        if self.meter_count != count:
            self._known.clear()  # they hold what was forgotten


def _make_room(meters: dict[tuple[str, Scope], Rate] | dict[Scope, TokenBucket]) -> None:
    """Too many scopes are measured: the one that was met first is forgotten."""
    if len(meters) >= METERS_MAX:
        del meters[next(iter(meters))]  # type: ignore[arg-type]
