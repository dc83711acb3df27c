"""The layers of ARCHITECTURE.md, enforced: a package imports only from below."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"

# From the ground up. Packages in one row do not import each other.
LAYERS = [
    {"errors", "ids", "hashing", "config", "decisions", "timers", "descriptors", "compiled"},
    {"protocol"},
    {"records"},
    {"replication", "cluster", "groups", "transactions", "security"},
    {"disk", "runtime"},
    {"storage", "store", "net"},
    {"controller"},
    {"broker", "client", "local_cluster"},
    {"testing"},
    {"compat", "console", "spark"},
    {"cli"},
]
# Within the first layer the order is free: these know each other.
GROUND = LAYERS[0]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

PURE = {"protocol", "records", *LAYERS[3]}
DOORS_TO_THE_WORLD = {"asyncio", "os", "socket", "time", "random", "subprocess", "threading", "pathlib", "mmap"}


def imported_modules(place: str, tree: ast.Module, *, at_run_time: bool = False) -> set[str]:
    """What a module imports; `at_run_time` leaves out what only a type checker sees."""
    found: set[str] = set()
    nodes = [
        node
        for node in tree.body
        if not (at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    for node in (node for top in nodes for node in ast.walk(top)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package_of(place: str) -> str | None:
    """None for the few modules beside the packages that are in no layer, such as `__main__`."""
    first, *rest = place.split("/")
    package = first.removesuffix(".py")
    assert package in LEVEL or not rest, f"{package} has no place in the layers: give it one in {__file__}"
    return package if package in LEVEL else None


def test_a_module_imports_only_from_below(trees: dict[str, ast.Module]) -> None:
    wrong = []
    for place, tree in trees.items():
        package = package_of(place)
        if package is None:
            continue
        for name in imported_modules(place, tree):
            parts = name.split(".")
            if parts[0] != "ottla" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            other = parts[1]
            if other == package or {package, other} <= GROUND:
                continue
            if LEVEL[other] >= LEVEL[package]:
                wrong.append(f"{place} must not import {name}: {other} is not below {package}")
    assert wrong == []


def test_a_pure_package_does_not_touch_the_world(trees: dict[str, ast.Module]) -> None:
    wrong = []
    for place, tree in trees.items():
        if package_of(place) in PURE:
            imported = {name.split(".")[0] for name in imported_modules(place, tree, at_run_time=True)}
            wrong += [f"{place} must not import {name}" for name in sorted(imported & DOORS_TO_THE_WORLD)]
    assert wrong == []


def test_the_table_in_the_documentation_is_the_one_above() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("| layer | packages |") : page.index("\n### ")]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == LAYERS
