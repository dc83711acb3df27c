"""Compacted logs in random histories: see `ottla.testing.compaction_model`. Longer in tests/crash."""

import pytest

from ottla.testing.compaction_model import History
from ottla.testing.seeds import portion_id, portions


@pytest.mark.parametrize("seeds", portions(40, per_test=10), ids=portion_id)
def test_readers_of_a_compacted_log_see_what_they_must(seeds: range) -> None:
    for seed in seeds:
        try:
            History(seed).play()
        except Exception as error:
            error.add_note(f"OTTLA_SIM_SEED={seed}")
            raise
