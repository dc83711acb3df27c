"""Whoever needs a part of a broker gets that part. The few that are handed the whole broker are listed."""

import ast
import re
from pathlib import Path

BROKER = Path(__file__).parents[2] / "src" / "ottla" / "broker"

# Handlers get the broker as an argument. Besides them, and why:
TAKES_A_BROKER = {
    "cluster_member.py": "makes the parts that only a broker of a cluster has, and keeps none but those",
    "dispatch.py": "passes it on to handlers",
}


def annotations(tree: ast.AST) -> set[str]:
    return {
        ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None
    }


def test_a_whole_broker_is_handed_to_few(trees: dict[str, ast.Module]) -> None:
    found = {path.name for path in BROKER.glob("*.py") if "Broker" in annotations(trees[f"broker/{path.name}"])}
    assert found - {"broker.py"} == TAKES_A_BROKER.keys()


def test_the_parts_of_a_cluster_do_not_keep_the_broker() -> None:
    kept = re.compile(r"self\.\w+(: \w+)? = broker$", re.MULTILINE)
    assert not kept.search((BROKER / "cluster_member.py").read_text())


def test_nobody_reaches_what_a_broker_keeps_to_itself(trees: dict[str, ast.Module]) -> None:
    for place in (place for place in trees if place.startswith("broker/")):
        for node in ast.walk(trees[place]):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = ast.unparse(node.value)
                assert owner not in ("broker", "self._broker"), f"{place}:{node.lineno}: {owner}.{node.attr}"
