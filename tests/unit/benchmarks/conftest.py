"""The benchmarks are programs beside each other, not a package: their directory is where they find one another."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.append(str(BENCHMARKS))
