"""Whoever needs a part of a broker gets that part. The few that are handed the whole broker are listed."""

import ast
from pathlib import Path

BROKER = Path(__file__).parents[2] / "src" / "ottla" / "broker"

# Handlers get the broker by their interface. These get it as well, because they use most of its parts.
HOLDS_A_BROKER = {
    "cluster_member.py",  # puts together the parts that only a broker of a cluster has
    "control_requests.py",
    "coordinators.py",
    "dispatch.py",  # passes it on to handlers
    "group_coordinator.py",
    "marker_delivery.py",
    "sasl_authenticator.py",
    "transaction_coordinator.py",
    "transactional_produce.py",
    "verification.py",
}


def annotations(tree: ast.AST) -> set[str]:
    return {
        ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None
    }


def test_a_whole_broker_is_handed_to_few() -> None:
    found = {path.name for path in BROKER.glob("*.py") if "Broker" in annotations(ast.parse(path.read_text()))}
    assert found - {"broker.py"} == HOLDS_A_BROKER


def test_nobody_reaches_what_a_broker_keeps_to_itself() -> None:
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = ast.unparse(node.value)
                assert owner not in ("broker", "self._broker"), f"{path.name}:{node.lineno}: {owner}.{node.attr}"
