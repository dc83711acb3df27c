"""A shop: its orders and clicks as events, and its books, from which every result follows."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

TICK_S = 10  # of the shop's time
CLICKS_PER_TICK, ORDERS_PER_TICK = 400, 100
LATE_SHARE, LATE_MAX_S = 0.05, 90  # within the lateness that the pipeline allows
TOO_LATE_COUNT = 250
BROKEN_SHARE = 0.01
USERS = 3000
COUNTRIES = ("DE", "FR", "IT", "ES", "PL")
CAMPAIGNS = ("spring", "newsletter", "search", "friends")
JOIN_WINDOW = timedelta(minutes=5)
OPENING = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)

Purchase = tuple[str, str]  # an order and a click before it
Event = tuple[str, str, bytes | None]  # topic, key, value


@dataclass
class Shop:
    """Makes events and keeps the books: what the pipeline must find."""

    rng: random.Random
    sent: Counter[str] = field(default_factory=Counter)
    orders: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    cents: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    broken: list[bytes | None] = field(default_factory=list)  # whatever was sent and cannot be read
    order_times: list[tuple[str, str, datetime]] = field(default_factory=list)
    clicks_of: dict[str, list[tuple[datetime, str]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def event_count(self) -> int:
        return self.sent["orders"] + self.sent["clicks"]

    def tick(self, opens: datetime) -> Iterator[Event]:
        """The events of a few seconds."""
        for topic, count in (("clicks", CLICKS_PER_TICK), ("orders", ORDERS_PER_TICK)):
            for _ in range(count):
                at = opens + timedelta(milliseconds=self.rng.randrange(TICK_S * 1000))
                if self.rng.random() < LATE_SHARE:
                    at -= timedelta(seconds=self.rng.randrange(LATE_MAX_S))
                    self.sent["late"] += 1
                self.sent[topic] += 1
                event = self._click(at) if topic == "clicks" else self._order(at)
                if self.rng.random() < BROKEN_SHARE:
                    yield topic, event["user"], self._break(event)
                else:
                    self._note(topic, event, at)
                    yield topic, event["user"], json.dumps(event).encode()

    def too_late(self) -> Iterator[Event]:
        """Orders of the first minute, when the shop has long been past it."""
        for _ in range(TOO_LATE_COUNT):
            event = self._order(OPENING + timedelta(seconds=self.rng.randrange(60)))
            yield "orders", event["user"], json.dumps(event).encode()

    def closing(self, at: datetime) -> Iterator[Event]:
        """One event of each kind, so much later that everything before it is settled. They are in no result."""
        for topic, event in (("clicks", self._click(at)), ("orders", self._order(at))):
            yield topic, event["user"], json.dumps({**event, "user": f"nobody who sends {topic}"}).encode()

    def purchases(self) -> Counter[Purchase]:
        """Every order with each click of its user in the five minutes before."""
        return Counter(
            (order, click)
            for order, user, at in self.order_times
            for clicked, click in self.clicks_of[user]
            if at - JOIN_WINDOW <= clicked <= at
        )

    def _order(self, at: datetime) -> dict[str, str | int]:
        return {
            "order_id": f"o-{self.rng.getrandbits(48):012x}",
            "user": f"u-{self.rng.randrange(USERS)}",
            "country": self.rng.choices(COUNTRIES, (5, 4, 3, 2, 1))[0],
            "cents": self.rng.randrange(500, 20_000),
            "at": at.isoformat(),
        }

    def _click(self, at: datetime) -> dict[str, str | int]:
        return {
            "click_id": f"c-{self.rng.getrandbits(48):012x}",
            "user": f"u-{self.rng.randrange(USERS)}",
            "campaign": self.rng.choice(CAMPAIGNS),
            "at": at.isoformat(),
        }

    def _break(self, event: dict[str, str | int]) -> bytes | None:
        whole = json.dumps(event).encode()
        without_user = json.dumps({name: value for name, value in event.items() if name != "user"}).encode()
        value = self.rng.choice([whole[: len(whole) // 2], without_user, b"\xff\xfe not json", b"", None])
        self.broken.append(value)
        return value

    def _note(self, topic: str, event: dict[str, str | int], at: datetime) -> None:
        user = str(event["user"])
        if topic == "clicks":
            self.clicks_of[user].append((at, str(event["click_id"])))
            return
        cell = (at.replace(second=0, microsecond=0), str(event["country"]))
        self.orders[cell] += 1
        self.cents[cell] += int(event["cents"])
        self.order_times.append((str(event["order_id"]), user, at))
