"""The examples of the guide to migrating clients run against a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.testing.broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "migration-clients.md"


def test_the_examples_of_the_guide_run(broker: Broker) -> None:
    shared: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        code = compile(block.replace("127.0.0.1:9092", broker.bootstrap_servers), str(PAGE), "exec")
        exec(code, shared)
    assert shared["first"].value == b"a value"
    assert shared["message"].value() == b"a value"
