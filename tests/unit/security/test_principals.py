"""The name in a certificate, as Kafka's principals have it. What is expected here is what Java 17 made of the same."""

from __future__ import annotations

import pytest

from ottla.security.principals import distinguished_name
from ottla.testing.certificate_names import UTF8, Attribute, certificate_of

CN, UID, DC, EMAIL = "2.5.4.3", "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1"
PRINTABLE, T61, IA5, UNIVERSAL, BMP = 0x13, 0x14, 0x16, 0x1C, 0x1E


def cn(text: str) -> list[list[Attribute]]:
    return [[(CN, UTF8, text.encode())]]


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([*cn("alice"), [("2.5.4.10", UTF8, b"O")], [("2.5.4.6", PRINTABLE, b"DE")]], "C=DE,O=O,CN=alice"),
        ([[(EMAIL, IA5, b"a@b.c")], *cn("x")], "CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
        (cn('a=b#c,d+e"f\\g<h>i;j'), 'CN=a\\=b\\#c\\,d\\+e\\"f\\\\g\\<h\\>i\\;j'),
        (cn("  lead and trail  "), "CN=\\ \\ lead and trail\\ \\ "),
        (cn(" "), "CN=\\ "),
        (cn("a\nb"), "CN=a\nb"),
        ([[(CN, UTF8, b"m"), (UID, UTF8, b"u")], [(DC, IA5, b"dc")]], "DC=dc,CN=m+UID=u"),
        ([[("2.5.4.5", PRINTABLE, b"5")], [("2.5.4.9", UTF8, b"s")]], "STREET=s,2.5.4.5=#130135"),
        ([[("1.2.3.4.5", UTF8, b"mine")]], "1.2.3.4.5=#0c046d696e65"),
        (cn("jürgen \u2713 \U0001f600"), "CN=jürgen \u2713 \U0001f600"),
        ([[(CN, BMP, "bmp é".encode("utf-16-be"))]], "CN=bmp é"),
        ([[(CN, T61, b"t61")]], "CN=t61"),
        ([[(CN, UNIVERSAL, "uni".encode("utf-32-be"))]], "CN=#1c0c000000750000006e00000069"),
        ([], ""),
    ],
)
@pytest.mark.parametrize("has_version", [True, False])
def test_a_subject_is_written_as_java_does(parts: list[list[Attribute]], name: str, has_version: bool) -> None:
    assert distinguished_name(certificate_of(*parts, has_version=has_version)) == name


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x03\x30\x01\x02", certificate_of([(CN, UTF8, b"\xff")])])
def test_a_certificate_that_cannot_be_read_names_nobody(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reader of DER has many
        distinguished_name(data)
