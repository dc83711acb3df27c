"""One name for one thing: on the side of the broker every public class has a name of its own; `is_` and `has_` ask.

Clients, front ends and tests have names of their users, which may be the same (a `Producer`, a `Topic`).
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

USERS = ("cli", "client", "compat", "spark", "testing")
PREDICATE = re.compile(r"_*(?:is|has)_")
MESSAGES = "protocol/messages"  # Kafka's names, where a struct belongs to its message


def test_no_two_classes_of_the_broker_have_one_name(trees: dict[str, ast.Module]) -> None:
    places = defaultdict(list)
    for place, tree in trees.items():
        if not place.startswith((*(f"{name}/" for name in USERS), MESSAGES)):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(place)
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def changes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """What a function assigns to besides its own variables."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute | ast.Subscript):
                    yield ast.unparse(target)


def test_predicates_ask_and_change_nothing(trees: dict[str, ast.Module]) -> None:
    acting = {}
    for place, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and PREDICATE.match(node.name):
                changed = list(changes(node))
                if changed:
                    acting[f"{place}: {node.name}"] = changed
    assert acting == {}
