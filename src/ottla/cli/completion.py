"""`ottla completion`: a script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import Final

from ottla.cli.command import Command, ExitCode
from ottla.cli.syntax import Syntax, syntax_of

DESCRIPTION: Final = """\
Print a script that lets a shell complete commands, options and values.
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


def _values(syntax: Syntax) -> Iterator[tuple[tuple[str, ...], str]]:
    """The values to choose from, none where any may be given, and a pattern of the options they belong to."""
    patterns: dict[tuple[str, ...], list[str]] = {}
    for command in syntax.walk():
        for option in command.options:
            if option.takes_value:
                patterns.setdefault(option.choices, []).extend(
                    _quoted(f"{command.path} {flag}") for flag in option.flags
                )
    return ((choices, "|".join(found)) for choices, found in patterns.items())


def _words(command: Syntax) -> list[str]:
    choices = [choice for argument in command.arguments if not argument.flags for choice in argument.choices]
    flags = [flag for option in command.options for flag in option.flags]
    return [*(each.name for each in command.subcommands), *choices, *flags]


def _bash(syntax: Syntax) -> Iterator[str]:
    yield "# Completion of ottla for bash. Made by: ottla completion bash"
    yield "_ottla() {"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"
    yield f"    local place={syntax.path} word words="
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        case "$place $word" in'
    yield f'            {_paths_below(syntax)}) place="$place $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place $previous" in'
    for choices, pattern in _values(syntax):
        yield f"        {pattern})"
        yield f'            COMPREPLY=($(compgen -W {_quoted(" ".join(choices))} -- "$current")); return ;;'
    yield "    esac"
    yield '    case "$place" in'
    for command in syntax.walk():
        yield f"        {_quoted(command.path)}) words={_quoted(' '.join(_words(command)))} ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    # Where nothing of ours fits, the shell completes file names.
    yield "complete -o default -F _ottla ottla"


def _zsh(syntax: Syntax) -> Iterator[str]:
    yield "#compdef ottla"
    yield "# Completion of ottla for zsh. Made by: ottla completion zsh"
    yield "_ottla() {"
    yield f"    local place={syntax.path} word"
    yield "    local -a found"
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield '        case "$place $word" in'
    yield f'            {_paths_below(syntax)}) place="$place $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place ${words[CURRENT-1]}" in'
    for choices, pattern in _values(syntax):
        action = f"compadd -- {' '.join(map(_quoted, choices))}" if choices else "_files"
        yield f"        {pattern}) {action}; return ;;"
    yield "    esac"
    yield '    case "$place" in'
    for command in syntax.walk():
        yield f"        {_quoted(command.path)}) found=("
        yield from (f"            {_quoted(_described(word, text))}" for word, text in _descriptions(command))
        yield "        ) ;;"
    yield "    esac"
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
    for command in syntax.walk():
        start = f"complete -c ottla -n {_quoted(f'__ottla_at {command.path}')}"
        for each in command.subcommands:
            yield f"{start} -f -a {each.name} -d {_quoted(each.help)}"
        for argument in command.arguments:
            described = f"-d {_quoted(_first_sentence(argument.help))}"
            values = f" -a {_quoted(' '.join(argument.choices))}" if argument.choices else ""
            if argument.flags:
                flags = " ".join(
                    f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags
                )
                needs = (" -x" if argument.choices else " -r") if argument.takes_value else ""
                yield f"{start} {flags}{needs}{values} {described}"
            elif values:
                yield f"{start} -f{values} {described}"


SHELLS: Final[dict[str, Callable[[Syntax], Iterator[str]]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

COMMAND: Final = Command("completion", "print a completion script for a shell", DESCRIPTION, _add_arguments, _run)
