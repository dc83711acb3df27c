"""A name that begins with an underscore is used only in the module that defines it."""

import ast
from collections.abc import Iterator

OWN = ("self", "cls", "super()", "argparse")  # argparse: it has no public names for its types
OF_PYTHON = {"_asdict", "_make", "_replace", "_value_", "_value2member_map_", "_exit"}  # documented in spite of it

# By module: what it reaches into.
ALLOWED = {
    "cli/syntax.py": "argparse, which does not say in public what its arguments are",
    "client/producer/blocking.py": "its twin on asyncio",
    "client/producer/open_transaction.py": "the producer that it belongs to",
    "spark/compat.py": "pyspark",
    "testing/history_workload.py": "librdkafka, whose own error codes begin so",
    "testing/loop.py": "asyncio, whose timers it runs",
}


def private_names_of_others(tree: ast.AST) -> Iterator[ast.Attribute]:
    own = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(attr=name, value=owner) if ast.unparse(owner) in OWN:
                own.add(name)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if node.attr not in own | OF_PYTHON and ast.unparse(node.value) not in OWN:
            yield node


def test_nobody_reaches_into_another_module(trees: dict[str, ast.Module]) -> None:
    found = {}
    for place, tree in trees.items():
        reached = [f"{node.lineno}: {ast.unparse(node)}" for node in private_names_of_others(tree)]
        if reached:
            found[place] = reached
    assert {name: reached for name, reached in found.items() if name not in ALLOWED} == {}
    assert sorted(ALLOWED.keys() - found.keys()) == [], "these need no exception any more"


def test_what_it_finds() -> None:
    (found,) = private_names_of_others(ast.parse("admin._cluster, self._x, other._x, pair._replace(a=1), x.__class__"))
    assert found.attr == "_cluster"
