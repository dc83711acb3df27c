"""JAAS text, as `sasl.jaas.config` holds it: one login module and its options.

In Java the text names a class that is then loaded, which was used to run code of an attacker's choice (CVE-2023-25194,
CVE-2025-27818, CVE-2025-27819). Here it names one of the modules below, and anything else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.config.security_settings import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from ottla.errors import ConfigError

_PREFIX = "org.apache.kafka.common.security."
PLAIN_MODULE = f"{_PREFIX}plain.PlainLoginModule"
SCRAM_MODULE = f"{_PREFIX}scram.ScramLoginModule"
OAUTHBEARER_MODULE = f"{_PREFIX}oauthbearer.OAuthBearerLoginModule"
MODULES = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
FLAGS = ("required", "requisite", "sufficient", "optional")
USER_PREFIX = "user_"

_TOKEN = re.compile(
    r"""
    (?P<blank>[\s]+ | //[^\n]* | /\*.*?\*/ | /[^\n]*)
    | "(?P<double>(?:[^"\\]|\\.)*)"
    | '(?P<single>(?:[^'\\]|\\.)*)'
    | (?P<word>[A-Za-z_$][A-Za-z0-9_.$-]*)
    | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options. Shown without them: among them are passwords."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users that the text of PLAIN lists, by name."""
        start = len(USER_PREFIX)
        return {name[start:]: value for name, value in self.options.items() if name.startswith(USER_PREFIX)}


def parse_jaas(setting: str, text: str, mechanism: str) -> JaasEntry:
    """The entry that the text holds; ConfigError says what is wrong with it and never repeats it."""
    tokens = list(_tokens(setting, text))
    if len(tokens) < 2 or tokens[0][0] != "text" or tokens[1][0] != "text":
        raise _error(setting, 'must be `<module> required <name>="<value>" ... ;`')
    module, flag = tokens[0][1], tokens[1][1]
    _check_module(setting, module, mechanism)
    if flag.lower() not in FLAGS:
        raise _error(setting, f"the word after the module must be one of {', '.join(FLAGS)}")
    if tokens[-1] != ("sign", ";"):
        raise _error(setting, "must end with a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise _error(setting, "after the flag come name=value pairs, and one module only")
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if name[0] != "text" or equals != ("sign", "=") or value[0] != "text":
            raise _error(setting, "after the flag come name=value pairs, and one module only")
        options[name[1]] = value[1]
    return JaasEntry(module, options)


def _tokens(setting: str, text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _error(setting, f"cannot be read at character {position + 1}; is a value without quotes there?")
        position = match.end()
        kind = match.lastgroup
        if kind in ("double", "single"):
            yield "text", _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), match[kind])
        elif kind == "word":
            yield "text", match["word"]
        elif kind == "sign":
            yield "sign", match["sign"]


def _check_module(setting: str, module: str, mechanism: str) -> None:
    if module == KERBEROS_MODULE:
        raise _error(setting, "Kerberos (GSSAPI) is not served; use SCRAM-SHA-512")
    if module != MODULES[mechanism]:
        raise _error(setting, f"the module of {mechanism} is {MODULES[mechanism]}; no other is accepted")


def _error(setting: str, reason: str) -> ConfigError:
    return ConfigError(f"{setting}: {reason}")
