"""More compacted logs in random histories than tests/unit has time for: see `ottla.testing.compaction_model`."""

from __future__ import annotations

import pytest

from ottla.testing.compaction_model import History
from ottla.testing.seeds import portion_id, portions


@pytest.mark.parametrize("seeds", portions(240, per_test=40), ids=portion_id)
def test_readers_of_a_compacted_log_see_what_they_must(seeds: range) -> None:
    for seed in seeds:
        try:
            History(1_000_000 + seed).play()
        except Exception as error:
            error.add_note(f"OTTLA_SIM_SEED={seed}")
            raise
