"""`ottla completion`: a script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import Final

from ottla.cli.command import Command, ExitCode
from ottla.cli.syntax import Syntax, syntax_of

# What finds the broker on the command line that is being typed: options whose values the shell passes on.
BROKER_OPTIONS: Final = ("-b", "--bootstrap-server", "--cluster", "--command-config")
NAMES_TIMEOUT_S: Final = 2

DESCRIPTION: Final = """\
Print a script that lets a shell complete commands, options and values, and the names of topics and groups,
which it asks the broker for (that of --bootstrap-server if it has been typed already); without a broker it
offers none.
  bash:  ottla completion bash > ~/.local/share/bash-completion/completions/ottla
  zsh:   ottla completion zsh > a file _ottla in a directory of $fpath
  fish:  ottla completion fish > ~/.config/fish/completions/ottla.fish"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def _run(options: argparse.Namespace) -> ExitCode:
    # Imported here: `main` knows this command, and this command all others.
    from ottla.cli.main import make_parser

    print(script(options.shell, syntax_of(make_parser())), end="")
    return ExitCode.OK


def script(shell: str, syntax: Syntax) -> str:
    """The whole script for a shell."""
    return "".join(f"{line}\n" for line in SHELLS[shell](syntax))


def _quoted(text: str) -> str:
    return shlex.quote(text)


def _first_sentence(text: str) -> str:
    return text.split(";")[0].split(" (default")[0]


def _paths_below(syntax: Syntax) -> str:
    """A pattern of `case` for every command below the top."""
    return "|".join(_quoted(each.path) for each in syntax.walk() if each is not syntax)


def _values(syntax: Syntax) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The values to choose from, or the names of what, none where any may be given, and a pattern of the options."""
    patterns: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for command in syntax.walk():
        for option in command.options:
            if option.takes_value:
                patterns.setdefault((option.choices, option.names), []).extend(
                    _quoted(f"{command.path} {flag}") for flag in option.flags
                )
    return ((choices, names, "|".join(found)) for (choices, names), found in patterns.items())


def _names_of(command: Syntax) -> str:
    """What the positional arguments of a command name."""
    return next((argument.names for argument in command.arguments if not argument.flags and argument.names), "")


def _patterns_of_names(syntax: Syntax) -> Iterator[tuple[str, str]]:
    """Topics and groups, and a pattern of the commands that take them."""
    found: dict[str, list[str]] = {}
    for command in syntax.walk():
        if names := _names_of(command):
            found.setdefault(names, []).append(_quoted(command.path))
    return ((names, "|".join(paths)) for names, paths in found.items())


def _ask_for_names(words: str) -> Iterator[str]:
    """A function of the shell that asks the broker: silent, and quick where there is none. `words` is the line."""
    yield "__ottla_names() {"
    yield "    local word previous="
    yield "    local -a where"
    yield f"    for word in {words}; do"
    yield '        case "$previous" in'
    yield f'            {"|".join(BROKER_OPTIONS)}) where+=("$previous" "$word") ;;'
    yield "        esac"
    yield "        previous=$word"
    yield "    done"
    yield f'    ottla "$1" list --timeout {NAMES_TIMEOUT_S} "${{where[@]}}" 2>/dev/null'
    yield "}"


def _words(command: Syntax) -> list[str]:
    choices = [choice for argument in command.arguments if not argument.flags for choice in argument.choices]
    flags = [flag for option in command.options for flag in option.flags]
    return [*(each.name for each in command.subcommands), *choices, *flags]


def _bash(syntax: Syntax) -> Iterator[str]:
    yield "# Completion of ottla for bash. Made by: ottla completion bash"
    yield from _ask_for_names('"${COMP_WORDS[@]:0:COMP_CWORD}"')
    yield "_ottla() {"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"
    yield f"    local place={syntax.path} word words= names="
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        case "$place $word" in'
    yield f'            {_paths_below(syntax)}) place="$place $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place $previous" in'
    for choices, names, pattern in _values(syntax):
        words = f'"$(__ottla_names {names})"' if names else _quoted(" ".join(choices))
        yield f"        {pattern})"
        yield f'            COMPREPLY=($(compgen -W {words} -- "$current")); return ;;'
    yield "    esac"
    yield '    case "$place" in'
    for command in syntax.walk():
        yield f"        {_quoted(command.path)}) words={_quoted(' '.join(_words(command)))} ;;"
    yield "    esac"
    yield '    if [[ $current != -* ]]; then case "$place" in'
    for names, pattern in _patterns_of_names(syntax):
        yield f"        {pattern}) names=$(__ottla_names {names}) ;;"
    yield "    esac; fi"
    yield "    words=${names:-$words}"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    # Where nothing of ours fits, the shell completes file names.
    yield "complete -o default -F _ottla ottla"


def _zsh(syntax: Syntax) -> Iterator[str]:
    yield "#compdef ottla"
    yield "# Completion of ottla for zsh. Made by: ottla completion zsh"
    yield from _ask_for_names('"${(@)words[1,CURRENT-1]}"')
    yield "_ottla() {"
    yield f"    local place={syntax.path} word"
    yield "    local -a found"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield '        case "$place $word" in'
    yield f'            {_paths_below(syntax)}) place="$place $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place ${words[CURRENT-1]}" in'
    for choices, names, pattern in _values(syntax):
        offered = f'${{(f)"$(__ottla_names {names})"}}' if names else " ".join(map(_quoted, choices))
        action = f"compadd -- {offered}" if offered else "_files"
        yield f"        {pattern}) {action}; return ;;"
    yield "    esac"
    yield '    case "$place" in'
    for command in syntax.walk():
        yield f"        {_quoted(command.path)}) found=("
        yield from (f"            {_quoted(_described(word, text))}" for word, text in _descriptions(command))
        yield "        ) ;;"
    yield "    esac"
    yield '    if [[ ${words[CURRENT]} != -* ]]; then case "$place" in'
    for names, pattern in _patterns_of_names(syntax):
        yield f'        {pattern}) compadd -- ${{(f)"$(__ottla_names {names})"}} && return ;;'
    yield "    esac; fi"
    yield "    _describe -o ottla found || _files"
    yield "}"
    yield 'compdef _ottla ottla 2>/dev/null || _ottla "$@"'


def _described(word: str, text: str) -> str:
    return f"{word}:{text}".replace("\\", "\\\\") if text else word


def _descriptions(command: Syntax) -> Iterator[tuple[str, str]]:
    yield from ((each.name, each.help) for each in command.subcommands)
    for argument in command.arguments:
        yield from ((word, _first_sentence(argument.help)) for word in argument.flags or argument.choices)


def _fish(syntax: Syntax) -> Iterator[str]:
    yield "# Completion of ottla for fish. Made by: ottla completion fish"
    yield "function __ottla_at"
    yield f"    set -l place {syntax.path}"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$place $word"'
    yield f"            case {' '.join(_quoted(each.path) for each in syntax.walk() if each is not syntax)}"
    yield '                set place "$place $word"'
    yield "        end"
    yield "    end"
    yield '    test "$place" = "$argv"'
    yield "end"
    yield "function __ottla_names"
    yield "    set -l where"
    yield "    set -l previous ''"
    yield "    for word in (commandline -opc)"
    yield f"        if contains -- $previous {' '.join(BROKER_OPTIONS)}"
    yield "            set -a where $previous $word"
    yield "        end"
    yield "        set previous $word"
    yield "    end"
    yield f"    ottla $argv[1] list --timeout {NAMES_TIMEOUT_S} $where 2>/dev/null"
    yield "end"
    for command in syntax.walk():
        start = f"complete -c ottla -n {_quoted(f'__ottla_at {command.path}')}"
        for each in command.subcommands:
            yield f"{start} -f -a {each.name} -d {_quoted(each.help)}"
        for argument in command.arguments:
            described = f"-d {_quoted(_first_sentence(argument.help))}"
            offered = f"(__ottla_names {argument.names})" if argument.names else " ".join(argument.choices)
            values = f" -a {_quoted(offered)}" if offered else ""
            if argument.flags:
                flags = " ".join(
                    f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags
                )
                needs = (" -x" if offered else " -r") if argument.takes_value else ""
                yield f"{start} {flags}{needs}{values} {described}"
            elif values:
                yield f"{start} -f{values} {described}"


SHELLS: Final[dict[str, Callable[[Syntax], Iterator[str]]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

COMMAND: Final = Command("completion", "print a completion script for a shell", DESCRIPTION, _add_arguments, _run)
