"""Random histories of requests: `ottla.testing.differential` draws them, plays them to both and compares.

`make differential SECONDS=3600` plays more of them.
"""

from __future__ import annotations

import itertools
import os

import pytest

from ottla.testing.differential import Fuzzer
from ottla.testing.differential.allowed import BEING_MENDED
from ottla.testing.side_by_side import Brokers

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("OTTLA_DIFFERENTIAL_SECONDS") or 120)
# The same ones in every run, about a minute of them: on a machine that plays more, new ones would fail by chance.
HISTORIES = int(os.environ.get("OTTLA_DIFFERENTIAL_HISTORIES") or 200)


def test_random_histories_are_answered_as_by_apache_kafka(brokers: Brokers) -> None:
    with Fuzzer(brokers) as fuzzer:
        fuzzer.run(itertools.islice(itertools.count(), HISTORIES), seconds=SECONDS)
    assert fuzzer.tally.histories


def test_nothing_is_left_to_be_mended() -> None:
    assert not BEING_MENDED
