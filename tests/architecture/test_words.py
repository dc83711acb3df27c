"""Documentation, help texts and messages use the words of the field: CONTRIBUTING.md has the glossary.

The patterns are what readers stumbled over. Docstrings and comments of the product are searched for the plainest of
them; names of tests are not searched.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"
GUIDES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs" / "guide").glob("*.md"),
        *(ROOT / "docs" / "decisions").glob("*.md"),
    ]
)
REFERENCE = sorted(path for path in (ROOT / "docs" / "reference").glob("*.md") if path.name != "measured.md")

# A pattern, and what to write instead.
DIALECT = {
    r"\bshall\b": "must, will, or the plain present",
    r"\b(?:is|are|was|were|be|been|gets?|has|have|had|never|unless) told\b(?! apart)": "is reported",
    r"\bhears? of\b": "is notified of, learns of",
    r"\b(?:bears?|borne)\b": "allow, tolerate",
    r"\bwish(?:es)?\b": "request, entry",
    r"\bdice\b": "rng, random numbers",
    r"\bunfold\w*\b": "decompress",
    r"\bstrangers?\b": "unknown, unrelated",
    r"\banew\b": "again; recreated, rebuilt",
    r"\bnobody's\b": "say what it is, not whose it is not",
    r"\bwhat there is\b": "name the thing",
    r"\bheld against\b": "compared with, matched against",
    r"(?<!there )(?<!There )\bis no (?!longer|more|less|other|better|worse|cheaper|faster|slower)[a-z]+": "is not a",
    r"\b(?:a|one) (?:record|value|document) a line\b": "one … per line",
    r"\bat most so many\b|\bas far as there are so many\b": "at most N, this many",
    r"\bunder way\b": "in progress, in flight",
    r"[«»]": "plain quotes",
}


ANY = re.compile("|".join(DIALECT), re.IGNORECASE)


def problems(text: str) -> list[str]:
    plain = " ".join(text.split())
    if not ANY.search(plain):
        return []
    return [
        f"{found[0]!r}: {instead}" for words, instead in DIALECT.items() if (found := re.search(words, plain, re.I))
    ]


@pytest.mark.parametrize("page", [*GUIDES, *REFERENCE], ids=lambda path: path.name)
def test_pages_for_users(page: Path) -> None:
    assert problems(page.read_text()) == []


@cache
def suspects() -> list[Path]:
    """The modules in which one of the words stands somewhere: only those are worth parsing."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if problems(path.read_text())]


def messages(path: Path) -> Iterator[str]:
    """The strings of a module that a user may see: all but docstrings, with a word in place of each value."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)


def test_messages_and_help_texts() -> None:
    for path in suspects():
        for message in messages(path):
            assert problems(message) == [], f"{path.relative_to(SOURCE)}: {message}"


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, with their lines."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_docstrings_and_comments() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {problem}"
        for path in suspects()
        for line, text in sentences(path)
        for problem in problems(text)
    ]
    assert found == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert problems("how many partitions it shall have")
    assert problems("Packages on one line are strangers.")
    assert problems("'x' is no setting")
    assert problems("a broker that is not there is told at once")
    assert problems("there is no partition 7, it is no longer here, and the two can be told apart") == []
