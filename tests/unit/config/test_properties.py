import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import ConfigError, parse_properties


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb", "a", "b"),
        ("   a   =   b  ", "a", "b  "),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a = = b", "a", "= b"),
        ("listeners=PLAINTEXT://:9092", "listeners", "PLAINTEXT://:9092"),
        (r"a\ b=c", "a b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a=tab\tnew\nslash\\", "a", "tab\tnew\nslash\\"),
        (r"a=\q", "a", "q"),
        (r"a=\u00e9\u00E9", "a", "éé"),
        (r"a=\ud83d\ude00", "a", "😀"),
        (r"a=b # no comment", "a", "b # no comment"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\\\n", "a", "b\\"),
        ("a=b,\\\r\n c,\\\r\n d", "a", "b,c,d"),
        ("a=1\\", "a", "1"),
    ],
)
def test_a_line_is_a_name_and_a_value(line: str, name: str, value: str) -> None:
    assert dict(parse_properties(line)) == {name: value}


def test_comments_and_blank_lines_say_nothing() -> None:
    assert dict(parse_properties("# one\n  ! two\n\n \t\n#a=b \\\nc=d\n")) == {"c": "d"}


def test_a_property_knows_its_line() -> None:
    properties = parse_properties("# comment\na=1\n\nb=2\\\n3\nc=4\n", "my.properties")
    assert [properties.origin(name) for name in "abc"] == [f"my.properties, line {number}" for number in (2, 4, 6)]


def test_the_last_of_two_holds_and_is_noted() -> None:
    properties = parse_properties("a=1\nb=2\na=3\n")
    assert dict(properties) == {"a": "3", "b": "2"}
    assert properties.notes == ("server.properties: a is given in lines 1 and 3; the last one counts",)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=1\nb=\\u12\n", r"server.properties, line 2: \u must be followed by four hexadecimal digits, not by '12'"),
        ("b=\\u12x4\n", r"line 1: \u must be followed by four hexadecimal digits, not by '12x4'"),
        ("\n= 5\n", "server.properties, line 2: a value without a name: = 5"),
    ],
)
def test_what_is_wrong_is_told_by_its_line(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(text)
    assert complaint in str(caught.value)


def test_options_go_on_top_of_a_file() -> None:
    properties = parse_properties("a=1\nb=2\n").overridden({"b": "3", "c": "4"}, "--set")
    assert dict(properties) == {"a": "1", "b": "3", "c": "4"}
    assert (properties.origin("a"), properties.origin("b")) == ("server.properties, line 1", "--set")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_java_escapes_is_read_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in properties.items())
    assert dict(parse_properties(text)) == properties


@given(st.text())
def test_any_text_is_read_or_refused_by_its_line(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError as error:
        complaint = str(error)
    else:
        complaint = "".join(properties.origin(name) for name in properties)
    assert not complaint or complaint.startswith("server.properties, line ")
