"""JAAS text: one of the known modules and its options; anything else is an error that repeats no secret."""

from __future__ import annotations

import pytest

from ottla.config.jaas import MODULES, parse_jaas
from ottla.errors import ConfigError

PLAIN = MODULES["PLAIN"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="a" password="b c";', {"username": "a", "password": "b c"}),
        (f'{PLAIN} REQUIRED username=\'a\' user_x="\\"q\\"" ;', {"username": "a", "user_x": '"q"'}),
        (f"{PLAIN} required debug=true;", {"debug": "true"}),
        (f"/* first */ {PLAIN} required // the rest\n a=b;", {"a": "b"}),
        (f"{PLAIN} optional;", {}),
    ],
)
def test_what_can_be_read(text: str, options: dict[str, str]) -> None:
    assert parse_jaas("setting", text, "PLAIN").options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f'{PLAIN} required password="secret"',
        f'{PLAIN} sometimes password="secret";',
        f"{PLAIN} required password=5secret;",
        f'{PLAIN} required password="secret;',
        f'{PLAIN} required password="secret"; {PLAIN} required;',
        f'{PLAIN} required password "secret";',
    ],
)
def test_what_cannot_be_read_is_an_error_without_the_secret(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_jaas("setting", text, "PLAIN")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "os.system",
        MODULES["SCRAM-SHA-256"],
    ],
)
def test_cve_2023_25194_2025_27818_2025_27819_no_other_module_is_accepted(module: str) -> None:
    with pytest.raises(ConfigError):
        parse_jaas("setting", f'{module} required user.provider.url="ldap://x";', "PLAIN")


def test_an_entry_is_shown_without_its_options() -> None:
    entry = parse_jaas("setting", f'{PLAIN} required user_alice="secret";', "PLAIN")
    assert entry.users == {"alice": "secret"}
    assert "secret" not in repr(entry)
