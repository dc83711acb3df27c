"""`make mutants`: plants one bug at a time in a copy of the tree and sees which tests notice.

    python tests/mutants/run.py -j 2                 # all of them
    python tests/mutants/run.py --quick storage      # only the quick tests, only mutants whose name has the word

The working tree is never touched. Each worker has a copy; of its mutant only the named tests are run, the quick ones
first. A test that fails without any mutant notices nothing: the quick ones have to pass before anything is planted, a
slow one is asked again without the mutant that it noticed. The exit code is 1 where fewer are caught than is the goal,
or where the list itself is out of date.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from catalogue import ROOT, Mutant, complaints, load

COPIED = (
    *("src", "tests", "examples", "docs", "benchmarks", "packaging", "pyproject.toml", "setup.py", "Makefile"),
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"),
)
QUICK_TIMEOUT_S = 120
SLOW_TIMEOUT_S = 900
CAUGHT_MIN, QUICK_MIN = 0.95, 0.80  # of all mutants: the goal
PYTEST_FAILED = 1
PYTEST_PASSED = 0


class Fate(StrEnum):
    QUICK = "caught by quick tests"
    SLOW = "caught by slow tests"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN: the tests do not run, or fail anyway"


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    fate: Fate
    seconds: float
    noticed_by: str = ""  # the first test that failed
    told: str = ""  # by pytest, where it could not run


class Copy:
    """A copy of the tree in which one bug at a time is planted."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        for name in COPIED:
            source, target = ROOT / name, directory / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, target)

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        # Python looks at size and second of a source: both may be those of the text before.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: Sequence[str], timeout_s: float, *options: str) -> tuple[int | None, str]:
        """pytest's exit code, None where it took too long, and its last words."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                told, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # what the tests started as well
                process.communicate()
                return None, f"not over after {timeout_s:.0f} s"
        return process.returncode, told[-3000:]


def judge(mutant: Mutant, copy: Copy, *, is_quick_only: bool) -> Outcome:
    started = time.monotonic()
    source = (copy.root / mutant.file).read_text(encoding="utf-8")
    copy.write(mutant.file, mutant.applied_to(source))
    stages = [(Fate.QUICK, mutant.quick, QUICK_TIMEOUT_S)]
    if not is_quick_only:
        stages.append((Fate.SLOW, mutant.slow, SLOW_TIMEOUT_S))
    fate, told = Fate.SURVIVED, ""
    try:
        for caught, tests, timeout_s in stages:
            if not tests:
                continue
            code, told = copy.run(tests, timeout_s)
            if code in (PYTEST_FAILED, None):  # a test that does not end notices as well
                fate = caught
                break
            if code != PYTEST_PASSED:
                fate = Fate.BROKEN
                break
    finally:
        copy.write(mutant.file, source)
    noticed_by = _first_failure(told)
    if fate is Fate.SLOW:
        code, told = copy.run([noticed_by] if noticed_by else mutant.slow, SLOW_TIMEOUT_S)
        if code != PYTEST_PASSED:
            fate = Fate.BROKEN
    return Outcome(mutant, fate, time.monotonic() - started, noticed_by, told if fate is Fate.BROKEN else "")


def _first_failure(told: str) -> str:
    found = re.search(r"^FAILED (\S+)", told, re.MULTILINE)
    return found[1] if found else ""


def show(outcome: Outcome) -> None:
    by = f"\n{'':32}{outcome.noticed_by}" if outcome.noticed_by else ""
    print(f"{outcome.fate.value:22} {outcome.seconds:5.0f} s  {outcome.mutant}{by}", flush=True)
    if outcome.told:
        print(outcome.told)


def sum_up(outcomes: Sequence[Outcome]) -> None:
    """A line for each group, and the shares of all."""
    print()
    by_group: dict[str, Counter[Fate]] = {}
    for outcome in outcomes:
        by_group.setdefault(outcome.mutant.group, Counter())[outcome.fate] += 1
    print(f"{'':14}{'quick':>7}{'slow':>7}{'survived':>10}")
    for group, fates in sorted(by_group.items()):
        print(f"{group:14}{fates[Fate.QUICK]:7}{fates[Fate.SLOW]:7}{fates[Fate.SURVIVED]:10}")
    quick = sum(outcome.fate is Fate.QUICK for outcome in outcomes)
    slow = sum(outcome.fate is Fate.SLOW for outcome in outcomes)
    count = len(outcomes)
    print(
        f"{count} mutants: {quick + slow} caught ({(quick + slow) / count:.0%}, goal {CAUGHT_MIN:.0%}),"
        f" {quick} by quick tests ({quick / count:.0%}, goal {QUICK_MIN:.0%})"
    )


def reached(outcomes: Sequence[Outcome], *, is_quick_only: bool) -> bool:
    quick = sum(outcome.fate is Fate.QUICK for outcome in outcomes)
    caught = quick + sum(outcome.fate is Fate.SLOW for outcome in outcomes)
    is_whole = not any(outcome.fate is Fate.BROKEN for outcome in outcomes)
    return is_whole and quick >= QUICK_MIN * len(outcomes) and (is_quick_only or caught >= CAUGHT_MIN * len(outcomes))


def failure_without(mutants: Iterable[Mutant], copy: Copy, jobs: int) -> str | None:
    """What pytest says where the quick tests of these mutants fail anyway."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.quick))
    if not tests:
        return None  # without a name pytest would run everything
    code, told = copy.run(tests, SLOW_TIMEOUT_S, "-n", str(jobs))
    return None if code == PYTEST_PASSED else told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants whose name or file has one of these")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="run the quick tests only")
    options = parser.parse_args()
    every = load()
    if wrong := complaints(every):
        print("\n".join(wrong))
        return 1
    mutants = [one for one in every if not options.words or any(word in f"{one} {one.file}" for word in options.words)]
    if not mutants:
        print("no mutant has such a name")
        return 1
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        first = Copy(Path(directory) / "0")
        if (told := failure_without(mutants, first, options.jobs)) is not None:
            print(f"without any mutant the quick tests must pass:\n{told}")
            return 1
        for copy in (first, *(Copy(Path(directory) / str(number)) for number in range(1, options.jobs))):
            copies.put(copy)

        def take(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                outcome = judge(mutant, copy, is_quick_only=options.quick)
            finally:
                copies.put(copy)
            show(outcome)
            return outcome

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(take, mutants))
    sum_up(outcomes)
    return 0 if reached(outcomes, is_quick_only=options.quick) else 1


if __name__ == "__main__":
    sys.exit(main())
