"""The example in the guide to transactions runs, and its links lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guide" / "transactions.md").read_text()


def test_the_example_of_the_checker_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(compile(example, "docs/guide/transactions.md", "exec"), {})


def test_what_the_guide_names_is_there() -> None:
    for name in re.findall(r"`(tests/[\w/.]+)`", GUIDE):
        assert (ROOT / name).exists(), name
    assert "## Transactions" in (ROOT / "docs" / "guide" / "command-line.md").read_text()
