"""Every C name of ours begins with `ottla_`: the code that Cython makes includes CPython's headers, whose names change
with every version. Python 3.12 brought a `write_varint`, and the core with one of its own no longer compiled.

What Cython names by itself (`cdef` functions, structs and constants) is mangled and safe. What is written in C is not:
headers, and the C in the string of a `cdef extern from *`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "ottla"
HEADERS = sorted(SOURCE.rglob("*.h"))
CYTHON = sorted([*SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxi")])

COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
DIRECTIVE = re.compile(r"^\s*#(?:\\\n|[^\n])*", re.MULTILINE)
EMBEDDED_C = re.compile(r'cdef extern from \*[^\n]*:\n\s*"""(.*?)"""', re.DOTALL)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)\s*")
KEYWORDS = {"enum", "struct", "union"}


def names_at_file_scope(code: str) -> set[str]:
    """What a piece of C declares for everybody who includes it: macros, functions, types, constants, variables."""
    code = COMMENT_OR_STRING.sub(" ", code)
    names = set(MACRO.findall(code))
    code = ATTRIBUTE.sub("", DIRECTIVE.sub("", code))
    for body in re.findall(r"\benum\b[^{;]*\{(.*?)\}", code, re.DOTALL):
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", body))
    while (flat := re.sub(r"\{[^{}]*\}", ";", code)) != code:  # bodies, from the innermost out
        code = flat
    names |= set(re.findall(r"\b(?:struct|union|enum)\s+(\w+)", code))
    for statement in code.split(";"):
        declared = re.sub(r"\(\s*\*\s*(\w+)\s*\)\s*\(.*", r" \1", statement, flags=re.DOTALL)  # a pointer to a function
        declared = re.sub(r"\(.*", "", declared, flags=re.DOTALL)  # parameters
        for part in declared.split(","):
            words = re.findall(r"\w+", re.sub(r"\[.*?\]|=.*", "", part, flags=re.DOTALL))
            if words and words[-1] not in KEYWORDS:
                names.add(words[-1])
    return names


def unprefixed(names: set[str]) -> set[str]:
    return {name for name in names if not name.lower().startswith("ottla_")}


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: path.name)
def test_the_names_of_a_header_have_our_prefix(path: Path) -> None:
    assert unprefixed(names_at_file_scope(path.read_text())) == set()


@pytest.mark.parametrize("path", CYTHON, ids=lambda path: path.name)
def test_the_names_of_c_within_cython_have_our_prefix(path: Path) -> None:
    for code in EMBEDDED_C.findall(path.read_text()):
        assert unprefixed(names_at_file_scope(code)) == set()


def test_the_reader_of_c_finds_names_of_every_kind() -> None:
    code = """
    #ifndef GUARD
    #define GUARD
    #define MACRO(x) (x)
    #include <string.h>
    enum { FIRST = 1, SECOND, /* a comment with a name */ };
    enum color { RED };
    struct tagged { int field; };
    typedef struct { uint64_t low, high; } alias;
    typedef uint32_t (*callback)(uint32_t, const uint8_t *);
    static uint32_t table[8][256], other[4] = {1, 2};
    static callback best = 0;
    static inline __attribute__((always_inline)) const uint8_t *function(const uint8_t *at, int64_t *value) {
        if (at) { int local = 1; return helper(local); }
        return "string with names()";
    }
    #endif
    """
    assert names_at_file_scope(code) == {
        *("GUARD", "MACRO", "FIRST", "SECOND", "color", "RED", "tagged", "alias", "callback"),
        *("table", "other", "best", "function"),
    }


def test_there_is_c_to_look_at() -> None:
    assert len(HEADERS) >= 3
    assert sum(len(EMBEDDED_C.findall(path.read_text())) for path in CYTHON) >= 2
