"""What the documentation says can be done: links lead somewhere, commands exist with their options, Python compiles.

That snippets also run is tested where their broker or their Spark is: tests/broker, tests/spark, tests/unit/cli.
"""

import argparse
import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ottla.cli.main import make_parser
from ottla.cli.syntax import syntax_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
SHELL_WORDS = {"|", "&", "&&", ";", ">", ">>", "<", "2>"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    return (text for language, text in BLOCK.findall(page.read_text()) if language in languages)


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problem_with(link: str, page: Path) -> str | None:
    """Why a link leads nowhere; those to other sites are not followed."""
    if re.match(r"\w+:", link):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: no such heading"
    return None


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(BLOCK.sub("", page.read_text()))
    assert [problem for link in links if (problem := problem_with(link, page))] == []


# -- commands -----------------------------------------------------------------------------------------------------


def shell_commands(page: Path) -> Iterator[list[str]]:
    """The words of every command in a page's shell blocks, without what the shell does around it."""
    lines = [line.removeprefix("$ ") for block in blocks(page, "sh") for line in joined_lines(block)]
    lines += [line[2:] for block in blocks(page, "console") for line in joined_lines(block) if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in lexer:
            if word in SHELL_WORDS:
                yield command
                command = []
            else:
                command.append(word)
        yield command


def joined_lines(block: str) -> Iterator[str]:
    """Lines of a block; one that ends in a backslash or inside of quotes goes on in the next."""
    pending = ""
    for line in block.splitlines():
        pending += line.removesuffix("\\")
        if line.endswith("\\") or pending.count("'") % 2:
            continue
        yield pending
        pending = ""


def without_environment(command: list[str]) -> list[str]:
    while command and re.match(r"\w+=", command[0]):
        command = command[1:]
    return command


@every_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    parser = command_line()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in map(without_environment, shell_commands(page)):
        match command:
            case ["ottla", *arguments]:
                parser.parse_args(arguments)  # a wrong one ends in SystemExit
            case ["make", *named]:
                assert {name for name in named if "=" not in name} <= targets, command
            case ["python", "-m", module, *_] if module.startswith("ottla"):
                assert module_file(module), command
            case ["python", program, *_] | ["pytest", program, *_] if program.endswith(".py"):
                assert "/" not in program or (ROOT / program).exists(), command


@every_page
def test_every_command_in_the_text_exists(page: Path) -> None:
    """`ottla topics list` in a sentence: words and long options are known, values may be left out."""
    known = known_words()
    for code in re.findall(r"`ottla ([^`]+)`", BLOCK.sub("", page.read_text())):
        first, *others = code.split()
        assert first in known, code
        assert {word for word in others if word.startswith("--")} <= known, code


@cache
def command_line() -> argparse.ArgumentParser:
    return make_parser()


@cache
def known_words() -> frozenset[str]:
    """The names of all commands, and all options."""
    commands = list(syntax_of(command_line()).walk())
    options = {flag for command in commands for argument in command.arguments for flag in argument.flags}
    return frozenset({command.name for command in commands} | options)


@every_page
def test_every_make_target_and_variable_in_the_text_exists(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)", text)) <= targets
    for name in set(re.findall(r"\bOTTLA_\w+", page.read_text())):
        assert name in sources(), f"{name} is read nowhere"


@cache
def sources() -> str:
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "setup.py"]
    return "\n".join(path.read_text() for path in paths if path != Path(__file__))


@every_page
def test_every_file_in_the_text_exists(page: Path) -> None:
    """Paths of the repository in backticks, from its root or, as in ARCHITECTURE.md, from src/ottla."""
    for path in re.findall(r"`((?:tests|src|docs|examples|benchmarks|packaging)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), path


# -- Python -------------------------------------------------------------------------------------------------------


def module_file(name: str) -> Path | None:
    """Where a module of ours is; nothing is imported, since not every environment has Spark."""
    path = ROOT / "src" / name.replace(".", "/")
    return next(filter(Path.exists, [path.with_suffix(".py"), path / "__init__.py"]), None)


@every_page
def test_every_python_snippet_compiles_and_imports_what_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(compile(block, page.name, "exec", ast.PyCF_ONLY_AST)):
            if isinstance(node, ast.Import):
                assert all(module_file(alias.name) for alias in node.names if alias.name.startswith("ottla")), block
            elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ottla"):
                file = module_file(node.module)
                assert file, block
                for alias in node.names:
                    assert alias.name in file.read_text() or module_file(f"{node.module}.{alias.name}"), block


@every_page
def test_every_toml_snippet_parses(page: Path) -> None:
    for block in blocks(page, "toml"):
        tomllib.loads(block)


def test_every_decision_has_its_own_number() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name


def test_there_is_something_to_check() -> None:
    """The patterns above find what they look for: a page that is written in another way would pass unread."""
    assert any("#" in link for page in PAGES for link in LINK.findall(page.read_text()))
    assert any(command[:1] == ["ottla"] for page in PAGES for command in shell_commands(page))
    assert any(blocks(page, "python") for page in PAGES)
    assert problem_with("nowhere.md", PAGES[0]) == "nowhere.md: no such file"
    assert problem_with("#nowhere", PAGES[0]) == "#nowhere: no such heading"
