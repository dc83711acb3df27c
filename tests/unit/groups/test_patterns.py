"""Patterns of subscriptions: RE2's syntax, the answers of Python's `re` where both agree, and never long."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ApiError, ErrorCode
from ottla.groups.patterns import PATTERN_LENGTH_MAX, TopicPattern

NAMES = [
    "a",
    "b",
    "ab",
    "abc",
    "orders",
    "orders.eu",
    "orders-1",
    "Orders_2",
    "aaaa",
    "x" * 249,
    "0",
    "__consumer_offsets",
]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "orders",
        "orders.*",
        r"orders\..*",
        "a|b",
        "(a|b)+c?",
        "[a-c]+",
        "[^a-c]+",
        "[]a]",
        "[a-]+",
        r"[\w.]+",
        r"\w+",
        r"\W",
        r"\D+",
        r"orders[.-]\w+",
        "a{2}",
        "a{2,}",
        "a{1,3}",
        "a{0,2}b?",
        "(?:ab)*c?",
        "(?P<name>a)b",
        "(?i)ORDERS.*",
        "(?i:ORD)ers",
        "^orders$",
        r"\Aorders\b.*",
        r"orders\B.*",
        ".*?s",
        "a{,2}",
        "a{x}",
        r"\x6frders",
        r"x+",
        "()",
        "(|a)b",
        r".+\b.\w+",
    ],
)
def test_it_says_what_python_says(pattern: str) -> None:
    found = TopicPattern(pattern).matching(NAMES)
    # {,2} repeats in Python and not in RE2.
    expected = set() if "{,2}" in pattern else {name for name in NAMES if re.fullmatch(pattern, name)}
    assert found == expected


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"\Qa.b\E.+", "a.bb"),
        (r"\Qa.b", "a.b"),
        ("[[:alpha:]_]+", "Orders_x"),
        ("[[:^digit:]]+", "abc"),
        ("(?<name>a)b", "ab"),
        (r"\x{6f}rders", "orders"),
        (r"(?i-i)a", "a"),
        (r"orders\z", "orders"),
        ("(?sU).*", "ab"),
        (r"[\d\-]+", "1-2"),
    ],
)
def test_what_only_re2_writes_so_is_understood(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name)
    assert not TopicPattern(pattern).matches(name + "\x00")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "a)",
        "[a",
        "[z-a]",
        "[",
        "*",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        "(a{100}){101}",
        "\\",
        r"\pX",
        r"\p{Klingon}",
        r"\1",
        r"(a)\1",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?x)a",
        "(?P<a b>a)",
        "(?P<n>a)(?P<n>b)",
        "(?i)*",
        "{2}",
        r"\x{110000}",
        r"\xzz",
        "[[:nonsense:]]",
        "(" * 101 + ")" * 101,
        "a" * (PATTERN_LENGTH_MAX + 1),
        "((((((a{9}){9}){9}){9}){9}){9}",
    ],
)
def test_what_is_no_pattern_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as refusal:
        TopicPattern(pattern)
    assert refusal.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


# What RE2/J 1.8, which Kafka uses, says of each pattern: the names that match, or null where it refuses it.
RE2J = json.loads((Path(__file__).parent / "re2j_answers.json").read_text())


@pytest.mark.parametrize(("pattern", "expected"), RE2J["matching"].items())
def test_it_says_what_re2j_says(pattern: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(ApiError):
            TopicPattern(pattern)
    else:
        assert TopicPattern(pattern).matching(RE2J["names"]) == set(expected)


def test_scripts_of_other_alphabets_are_not_known() -> None:
    with pytest.raises(ApiError, match="scripts are known of ASCII only"):
        TopicPattern(r"\p{Greek}+", frozenset("αβ"))
    assert TopicPattern(r"\p{Ll}+", frozenset("αβΓ")).matching(["αβ", "Γ"]) == {"αβ"}


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(a|aa)+b", "(.*a){20}b", "((a?){10}){20}b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Python's `re` would not come back from most of these."""
    assert not TopicPattern(pattern).matches("a" * 249)


def test_a_pattern_that_would_take_long_over_many_topics_is_refused() -> None:
    rng = random.Random(1)
    pattern = TopicPattern("([ab]?.?){120}x")
    with pytest.raises(ApiError, match="too long"):
        pattern.matching("".join(rng.choices("abcdefgh", k=150)) for _ in range(10_000))


def test_names_of_another_alphabet_are_held_against_it() -> None:
    names = ["shop/1", "shop 2", "Käse", "shop-3"]
    alphabet = frozenset("".join(names))
    assert TopicPattern(r"shop[^\w].", alphabet).matching(names) == {"shop/1", "shop 2", "shop-3"}
    assert TopicPattern(r"shop\s\d", alphabet).matching(names) == {"shop 2"}
    assert TopicPattern(r"shop[[:punct:]].*", alphabet).matching(names) == {"shop/1", "shop-3"}
    assert TopicPattern(r"K.se|\W*", alphabet).matching(names) == {"Käse"}


def test_thousands_of_topics_are_no_matter() -> None:
    names = [f"orders.region-{number}.events" for number in range(10_000)]
    assert len(TopicPattern(r"orders\.region-[0-4].*\.events").matching(names)) == 4445


@settings(max_examples=60)
@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b"]),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
            inner.map(lambda part: f"({part})*"),
            inner.map(lambda part: f"({part})?"),
            inner.map(lambda part: f"({part}){{1,2}}"),
        ),
        max_leaves=6,
    ),
    st.lists(st.text("ab.-", max_size=6), max_size=8),
)
def test_it_says_what_python_says_about_random_patterns(pattern: str, names: list[str]) -> None:
    found = TopicPattern(pattern)
    for name in names:
        assert found.matches(name) == (re.fullmatch(pattern, name) is not None), (pattern, name)
