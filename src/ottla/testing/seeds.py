"""Which seeds a test of a simulated world runs: `OTTLA_SIM_SEEDS=n` that many (`make sim SEEDS=n`), from
`OTTLA_SIM_FIRST=s` on; `OTTLA_SIM_SEED=s` that one.
"""

from __future__ import annotations

import os


def portions(count: int, *, per_test: int) -> list[range]:
    """A number of seeds, unless the environment says otherwise, in portions: workers share them, and a line of output
    stands for more than one.
    """
    if one := os.environ.get("OTTLA_SIM_SEED"):
        return [range(int(one), int(one) + 1)]
    first = int(os.environ.get("OTTLA_SIM_FIRST") or 0)
    end = first + int(os.environ.get("OTTLA_SIM_SEEDS") or count)
    return [range(start, min(start + per_test, end)) for start in range(first, end, per_test)]


def portion_id(portion: range) -> str:
    """How a test names its portion."""
    return f"{portion.start}-{portion.stop - 1}"
