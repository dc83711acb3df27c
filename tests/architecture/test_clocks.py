"""Wall time enters through one module: what is not a timestamp for others is counted by a clock that nobody sets."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ottla"

WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
MAY_LOOK = {
    "runtime/clock.py",  # the module itself
    "cli/produce.py",  # these three stamp records, like any client
    "spark/writing.py",
    "testing/side_by_side/transactions.py",
    "spark/class_archive.py",  # how old a file is
    "cli/backups/backup.py",  # when a backup was made
}


def wall_clocks_read(path: Path) -> set[str]:
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_CLOCKS
    }


def test_only_these_modules_read_the_wall_clock() -> None:
    found = {str(path.relative_to(SOURCE)) for path in sorted(SOURCE.rglob("*.py")) if wall_clocks_read(path)}
    assert found == MAY_LOOK
