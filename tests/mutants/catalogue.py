"""The planted bugs: what each changes, and which tests must notice. Kept as data in the files `*.toml` beside this one.

    [[mutant]]
    title = "a reader gets the batch that is not committed yet"
    file = "src/ottla/broker/partition.py"
    original = "upper_offset=high_watermark"          # occurs in the file exactly once
    mutated = "upper_offset=high_watermark + 1"
    quick = ["tests/unit/broker/test_fetch_limits.py"]
    slow = ["tests/broker/test_fetch.py"]             # asked where the quick ones let it pass

A new module adds the mistakes that its author was afraid of. Compiled sources are left out: a change there takes a
build, and the tests of parity hold them to the Python that is mutated here.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    group: str  # the name of its file: the package that it is planted in
    title: str
    file: str
    original: str
    mutated: str
    quick: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()

    def applied_to(self, source: str) -> str:
        """The source with the bug in it; ValueError where it is not clear what is to be changed."""
        found = source.count(self.original)
        if found != 1:
            raise ValueError(f"{self}: the original is in {self.file} {found} times, and must be there once")
        if self.mutated == self.original:
            raise ValueError(f"{self}: it changes nothing")
        return source.replace(self.original, self.mutated)

    def __str__(self) -> str:
        return f"{self.group}: {self.title}"


def load(directory: Path = Path(__file__).parent) -> list[Mutant]:
    """All mutants, by file."""
    found = []
    for path in sorted(directory.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            lists = {name: tuple(entry.pop(name, ())) for name in ("quick", "slow")}
            found.append(Mutant(path.stem, **entry, **lists))
    return found


def complaints(mutants: list[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with the list itself: text that is gone, tests that are gone, nobody who must notice."""
    found = []
    for mutant in mutants:
        try:
            compile(mutant.applied_to((root / mutant.file).read_text(encoding="utf-8")), mutant.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            found.append(str(error))
        if not (mutant.quick or mutant.slow):
            found.append(f"{mutant}: no test is named")
        found += [
            f"{mutant}: {test} is not there"
            for test in (*mutant.quick, *mutant.slow)
            if not (root / test.partition("::")[0]).exists()
        ]
    titles = [str(mutant) for mutant in mutants]
    found += [f"{title}: twice" for title in sorted(set(titles)) if titles.count(title) > 1]
    return found
