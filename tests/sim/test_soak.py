"""One broker, several clients, and a world that does its worst; every promise is checked: see `ottla.testing.soak`.

`OTTLA_SIM_SEEDS=n` runs that many seeds (`make sim SEEDS=n`) from `OTTLA_SIM_FIRST=s` on, `OTTLA_SIM_SEED=s` runs one.
A seed that fails becomes a named test once its cause is known.
"""

import os
import subprocess
import sys

import pytest

from ottla.testing.seeds import portion_id, portions
from ottla.testing.soak import Climate, soak

EVERYTHING = Climate(
    directories=3,
    retains_less=True,
    compacts=True,
    deletes_records=True,
    alters_configs=True,
    adds_partitions=True,
    fails_disks=True,
    fails_metadata=True,
    asks_offsets=True,
    sends_without_acks=True,
    sets_the_clock=True,
)


@pytest.mark.parametrize("portion", portions(120, per_test=10), ids=portion_id)
def test_every_promise_holds_whatever_happens(portion: range) -> None:
    acknowledged = read = 0
    for seed in portion:
        run = soak(seed)
        acknowledged += run.ledger.acknowledged_count
        read += run.ledger.read_count
    assert acknowledged > 0, "nothing was written"
    assert read > 0, "nothing was read"


@pytest.mark.parametrize("portion", portions(12, per_test=4), ids=portion_id)
def test_every_promise_holds_in_the_worst_climate(portion: range) -> None:
    """All that can go wrong does, in every run: by chance alone few of them have two of the rarer troubles."""
    runs = [soak(seed, EVERYTHING) for seed in portion]
    assert sum(run.ledger.acknowledged_count for run in runs) > 0, "nothing was written"
    assert sum(run.ledger.read_count for run in runs) > 0, "nothing was read"


def digest_of(seed: int) -> str:
    return soak(seed, EVERYTHING).world.trace.digest


def test_a_soak_can_be_replayed_in_another_process_too() -> None:
    """Neither the hashes of strings nor the addresses of objects may decide anything."""
    program = (
        f"import importlib.util; spec = importlib.util.spec_from_file_location('t', {__file__!r});"
        "t = importlib.util.module_from_spec(spec); spec.loader.exec_module(t); print(t.digest_of(5))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "3"}
    replayed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert replayed.stdout.strip() == digest_of(5)
