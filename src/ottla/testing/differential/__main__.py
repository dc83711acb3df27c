"""The fuzzer by hand: `python -m ottla.testing.differential --seconds 3600`."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from ottla.testing.differential.drawing import THEMES
from ottla.testing.differential.fuzzer import Fuzzer
from ottla.testing.side_by_side import both_brokers

PROGRESS_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.testing.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed only")
    parser.add_argument("--steps", help="only these steps of it, such as 0,4,7")
    parser.add_argument("--theme", choices=THEMES, help="only histories of this theme")
    parser.add_argument("--differences", type=int, default=20, help="stop after this many different ones")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as directory,
        both_brokers(Path(directory)) as brokers,
        Fuzzer(brokers) as fuzzer,
    ):
        reports = _run(fuzzer, arguments)
        tally = fuzzer.tally
    print(f"{tally.histories} histories, {sum(tally.requests.values())} requests to each; {len(reports)} differences")
    print("requests: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.requests.items())))
    for reason, count in tally.allowed.most_common():
        print(f"allowed {count} times: {reason}")
    return 1 if reports else 0


def _run(fuzzer: Fuzzer, arguments: argparse.Namespace) -> list[str]:
    steps = {int(number) for number in arguments.steps.split(",")} if arguments.steps else None
    seeds = itertools.count(arguments.first) if arguments.seed is None else [arguments.seed]
    deadline = time.monotonic() + arguments.seconds
    reports: dict[str, str] = {}
    told_at = time.monotonic()
    for seed in seeds:
        if time.monotonic() > told_at + PROGRESS_S:
            told_at = time.monotonic()
            print(f"{fuzzer.tally.histories} histories, next is seed {seed}", file=sys.stderr, flush=True)
        if time.monotonic() > deadline or len(reports) >= arguments.differences:
            break
        if report := fuzzer.try_seed(seed, steps, theme=arguments.theme, known=reports):
            signature = report.splitlines()[0].partition(": ")[2]
            reports[signature] = report
            print(report, flush=True)
    return list(reports.values())


if __name__ == "__main__":
    sys.exit(main())
