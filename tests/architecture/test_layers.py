"""The layers of ARCHITECTURE.md, enforced: a package imports only from below."""

import ast
import re
from pathlib import Path

import pytest

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


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in LEVEL)


def imported_modules(path: Path, *, at_run_time: bool = False) -> set[str]:
    """What a module imports; `at_run_time` leaves out what only a type checker sees."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    if at_run_time:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    package = package_of(path)
    assert package in LEVEL, f"{package} has no place in the layers: give it one in {__file__}"
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] != "ottla" or len(parts) < 2 or parts[1] not in LEVEL:
            continue
        other = parts[1]
        if other == package or {package, other} <= GROUND:
            continue
        assert LEVEL[other] < LEVEL[package], f"{package} must not import {other} ({name})"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_pure_package_does_not_touch_the_world(path: Path) -> None:
    if package_of(path) not in PURE:
        return
    touched = {name.split(".")[0] for name in imported_modules(path, at_run_time=True)} & DOORS_TO_THE_WORLD
    assert not touched, f"{path} is pure and must not import {sorted(touched)}"


def test_the_table_in_the_documentation_is_the_one_above() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("| layer | packages |") : page.index("\n### ")]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == LAYERS
