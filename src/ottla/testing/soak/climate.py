"""Which kinds of trouble and of work there are in one run: a seed chooses some, so that a run stays short."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

CHANCE = 0.35  # of each kind
DIRECTORIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Climate:
    """What a run has besides lost connections, slow disks, crashes, producers, readers, and topics that come and go."""

    directories: int = 1
    retains_less: bool = False  # retention by size and by time
    compacts: bool = False
    deletes_records: bool = False
    alters_configs: bool = False
    adds_partitions: bool = False
    fails_disks: bool = False  # EIO and ENOSPC under the logs
    fails_metadata: bool = False  # the same under the metadata store
    asks_offsets: bool = False
    sends_without_acks: bool = False
    sets_the_clock: bool = False

    @classmethod
    def of(cls, rng: Random) -> Climate:
        kinds = {field.name: rng.random() < CHANCE for field in fields(cls) if field.name != "directories"}
        # Where the only disk fails there is no broker left to look at.
        return cls(rng.randint(2 if kinds["fails_disks"] else 1, DIRECTORIES_MAX), **kinds)

    def topic_settings(self, rng: Random) -> dict[str, str]:
        """The settings of a new topic."""
        settings = {
            "internal.segment.bytes": str(rng.choice([2_000, 50_000])),
            "flush.ms": "1000",
            "file.delete.delay.ms": str(rng.choice([0, 2_000])),
        }
        policies = ["keep"] + ["size", "time"] * self.retains_less + ["compact"] * self.compacts
        policies += ["both"] * (self.retains_less and self.compacts)
        policy = rng.choice(policies)
        if policy in ("size", "both"):
            settings["retention.bytes"] = str(rng.choice([4_000, 20_000]))
        if policy == "time":
            settings["retention.ms"] = str(rng.choice([1_500, 5_000]))
        if policy in ("compact", "both"):
            settings["cleanup.policy"] = "compact" if policy == "compact" else "compact,delete"
            settings["min.cleanable.dirty.ratio"] = rng.choice(["0.0", "0.3"])
            settings["delete.retention.ms"] = rng.choice(["0", "3000", "86400000"])
        return settings

    def changed_topic_setting(self, rng: Random) -> tuple[str, str]:
        """A setting that a topic may be given while it is in use."""
        choices: list[tuple[str, list[str]]] = [
            ("internal.segment.bytes", ["2000", "9000", "50000"]),
            ("segment.ms", ["1000", "604800000"]),
            ("flush.messages", ["1", "20", "9223372036854775807"]),
            ("index.interval.bytes", ["0", "300", "4096"]),
            ("compression.type", ["producer", "gzip", "lz4", "zstd", "snappy", "uncompressed"]),
            ("max.message.bytes", ["1500", "1048588"]),
            ("file.delete.delay.ms", ["0", "60000"]),
        ]
        if self.retains_less:
            choices += [("retention.bytes", ["-1", "3000", "20000"]), ("retention.ms", ["-1", "1500", "604800000"])]
        if self.compacts:
            choices += [("cleanup.policy", ["compact", "delete", "compact,delete"]), ("delete.retention.ms", ["0"])]
        name, values = rng.choice(choices)
        return name, rng.choice(values)

    def changed_broker_setting(self, rng: Random) -> tuple[str, str]:
        """A setting that all brokers may be given while they run."""
        choices: list[tuple[str, list[str]]] = [
            ("log.segment.bytes", ["1048576", "1073741824"]),
            ("log.flush.interval.messages", ["1", "9223372036854775807"]),
            ("log.cleaner.backoff.ms", ["100", "2000"]),
            ("log.index.interval.bytes", ["0", "4096"]),
            ("compression.type", ["producer", "lz4"]),
            ("max.connections", ["100", "2147483647"]),
        ]
        if self.retains_less:
            choices += [("log.retention.bytes", ["-1", "8000"]), ("log.retention.ms", ["2500", "604800000"])]
        name, values = rng.choice(choices)
        return name, rng.choice(values)
