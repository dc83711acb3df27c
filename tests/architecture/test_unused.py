"""Whatever stands in the product is used by it: code for tests alone belongs to `ottla.testing` or to the tests.

By name, so it finds what nobody can use. A name that somebody uses for something else hides one, and `ottla.testing`,
which serves other people's tests as well, does not count as a use.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ottla"

# Modules whose names are not called by name.
NOT_LOOKED_AT = {
    "protocol/messages/": "messages are found by their API key, and a codec that knows all of them can be tried on all",
    "client/admin/": "what users' programs call; the parts behind it are looked at",
    "compat/": "what users' programs call",
    "client/consumer/interceptors.py": "as above",
    "client/consumer/redelivery.py": "as above",
    "client/error_codes.py": "a class for each error code, which finds it; users catch them",
    "client/producer/interceptors.py": "what users' programs call",
    "client/serializers/": "as above",
    "client/settings.py": "as above",
    "spark/compat.py": "pyspark calls these by its own names",
    "spark/datasource.py": "as above",
    "spark/listener.py": "as above",
    "spark/pipelines/definitions.py": "as above",
    "spark/source.py": "as above",
}
USED_ELSEWHERE = {
    "buffer_updated": "asyncio calls it",
    "connection_lost": "asyncio calls it",
    "eof_received": "asyncio calls it",
    "get_buffer": "asyncio calls it",
    "pause_writing": "asyncio calls it",
    "poll_arrow": "what users' programs call",
    "redirect_request": "urllib calls it",
    "resume_writing": "asyncio calls it",
    "waiter_count": "simulations, which check that nothing waits for ever",
}


def names_used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name):
                yield name.rpartition(".")[2]


def names_defined(place: str, tree: ast.AST) -> Iterator[tuple[str, str]]:
    if place.startswith(tuple(NOT_LOOKED_AT)):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_"):
            yield node.name, f"{place}:{node.lineno}"


def test_the_product_uses_every_public_name_it_defines(trees: dict[str, ast.Module]) -> None:
    product = {place: tree for place, tree in trees.items() if not place.startswith("testing/")}
    used = {name for tree in product.values() for name in names_used(tree)}
    for path in (*SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxi")):
        used.update(re.findall(r"\w+", path.read_text()))
    defined = dict(pair for place, tree in product.items() for pair in names_defined(place, tree))
    unused = {name: place for name, place in defined.items() if name not in used}
    assert {name: unused[name] for name in sorted(unused.keys() - USED_ELSEWHERE.keys())} == {}
    assert sorted(USED_ELSEWHERE.keys() - unused.keys()) == [], "these need no excuse any more"
