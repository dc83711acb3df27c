"""CVE-2021-38153: no comparison of a secret takes a time that tells how much of it was right.

Looked for in the source: whatever holds a secret is compared by `hmac.compare_digest` and by nothing else.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import ottla

SOURCE = Path(ottla.__file__).parent
FILES = sorted(
    path
    for place in ("security", "security/sasl", "broker", "broker/handlers", "net", "client")
    for path in (SOURCE / place).glob("*.py")
)
# Names of what only its owner knows. Those of settings, types and paths that have such words in them are none.
SECRET = re.compile(r"(^|_)(passwords?|proof|stored_key|server_key|salted|hmac|secret|signature|mac)$")
MAY_BE_COMPARED = (None, "", b"")


def secret_in(node: ast.expr) -> str | None:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name if SECRET.search(name) else None


def comparisons_of_secrets(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        is_presence = any(isinstance(side, ast.Constant) and side.value in MAY_BE_COMPARED for side in sides)
        is_identity = all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        if not is_presence and not is_identity:
            found += [f"line {node.lineno}: {name}" for side in sides if (name := secret_in(side))]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_secret_is_compared_by_an_operator(path: Path) -> None:
    assert comparisons_of_secrets(path.read_text()) == []


def test_such_a_comparison_would_be_found() -> None:
    assert comparisons_of_secrets("x = given == self.password")
    assert comparisons_of_secrets("x = proof in expected")
    assert comparisons_of_secrets("x = token.hmac != hmac")
    assert not comparisons_of_secrets("x = password is None or password == ''")


@pytest.mark.parametrize(
    ("file", "count"),
    [("security/sasl/plain.py", 1), ("security/sasl/scram.py", 3), ("broker/token_store.py", 1)],
)
def test_logins_compare_in_constant_time(file: str, count: int) -> None:
    assert (SOURCE / file).read_text().count("hmac.compare_digest(") == count


def test_passwords_are_compared_by_hashes_of_one_length() -> None:
    """`compare_digest` is over sooner where lengths differ."""
    calls = [
        node
        for node in ast.walk(ast.parse((SOURCE / "security/sasl/plain.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hmac.compare_digest"
    ]
    assert [ast.unparse(argument).partition("(")[0] for call in calls for argument in call.args] == ["_hash", "_hash"]
