"""Wall time enters through one module: what is not a timestamp for others is counted by a clock that nobody sets."""

import ast

WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
MAY_LOOK = {
    "runtime/clock.py",  # the module itself
    "cli/produce.py",  # these three stamp records, like any client
    "spark/writing.py",
    "testing/side_by_side/transactions.py",
    "spark/class_archive.py",  # how old a file is
    "cli/backups/backup.py",  # when a backup was made
}


def wall_clocks_read(tree: ast.Module) -> set[str]:
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in WALL_CLOCKS
    }


def test_only_these_modules_read_the_wall_clock(trees: dict[str, ast.Module]) -> None:
    assert {place for place, tree in trees.items() if wall_clocks_read(tree)} == MAY_LOOK
