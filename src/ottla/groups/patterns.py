"""Patterns of subscriptions, in the syntax of RE2, matched against names of topics.

A pattern comes from any client and is matched against every topic, so it must not be able to take long: Python's `re`
goes back and tries again, and `(a+)+b` then costs seconds. Here a pattern becomes a machine that walks over a name
once, all ways at the same time, and remembers the steps it has taken. Its size and its steps are limited.

Names of topics have 65 different characters, so a class of characters is the set of those that it takes; for other
names `alphabet` says which characters they have. What RE2 does not have (look-around, references back) is refused. The
syntax is that of RE2/J, which Kafka uses, down to what it takes and refuses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, hexdigits, punctuation, whitespace
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import ApiError, ErrorCode

PATTERN_LENGTH_MAX: Final = 10_000
REPEAT_MAX: Final = 1000
STATES_MAX: Final = 2500
NESTING_MAX: Final = 100
DFA_STATES_MAX: Final = 2000
# How much one look at all topics may take: about half a second for a pattern that was made to take long, nothing near
# it for any other.
VISITS_MAX: Final = 1_000_000

Chars: TypeAlias = frozenset[str]

TOPIC_CHARS: Final[Chars] = frozenset(ascii_letters + digits + "._-")
_ASCII: Final = frozenset(map(chr, range(128)))
_DIGITS: Final = frozenset(digits)
_WORD: Final = frozenset(ascii_letters + digits + "_")
_VISIBLE: Final = frozenset(ascii_letters + digits + punctuation)
_CLASS_LETTERS: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset(whitespace)}
_POSIX: Final = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "ascii": _ASCII,
    "blank": frozenset(" \t"),
    "cntrl": frozenset((*map(chr, range(32)), "\x7f")),
    "digit": _DIGITS,
    "graph": _VISIBLE,
    "lower": frozenset(ascii_lowercase),
    "print": _VISIBLE | {" "},
    "punct": frozenset(punctuation),
    "space": frozenset(whitespace),
    "upper": frozenset(ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(hexdigits),
}
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_OCTAL: Final = frozenset("01234567")
_OCTAL_DIGITS_MAX: Final = 3

# Unicode's general categories, and its scripts, by the names that RE2/J knows.
_CATEGORY_NAMES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
_SCRIPT_NAMES: Final = """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal
    Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic
    Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin
    Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham
    Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic
    Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil
    Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi"""
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_SCRIPTS: Final = frozenset(_SCRIPT_NAMES.split())
# Two letters of ASCII have a third form: the sign of kelvin and the long s.
_THIRD_FORMS: Final = {"k": "\u212a", "K": "\u212a", "s": "\u017f", "S": "\u017f"}


class _Place(NamedTuple):
    """Where a walk stands between two characters; None before the first and after the last."""

    before: str | None
    after: str | None


_ASSERTIONS: Final[dict[str, Callable[[_Place], bool]]] = {
    "A": lambda place: place.before is None,
    "z": lambda place: place.after is None,
    "b": lambda place: (place.before in _WORD) != (place.after in _WORD),
    "B": lambda place: (place.before in _WORD) == (place.after in _WORD),
}


class _State:
    """A state of the machine: takes a character to get to the next one, or goes on without under a condition."""

    __slots__ = ("chars", "condition", "following")

    def __init__(self) -> None:
        self.chars: Chars | None = None
        self.condition: Callable[[_Place], bool] | None = None
        self.following: list[_State] = []


class _Piece(NamedTuple):
    """A part of the machine with one way in and one way out."""

    start: _State
    end: _State


class _DfaState:
    """A state of the automaton built while matching: a set of states of the pattern, and the character before."""

    __slots__ = ("before", "is_end", "states", "steps")

    def __init__(self, states: frozenset[_State], before: str | None) -> None:
        self.states = states
        # All that a condition asks of the character before: is there one, and is it of a word.
        self.before = before
        self.steps: dict[str, _DfaState] = {}
        self.is_end: bool | None = None


class TopicPattern:
    """A pattern that matches whole names. ApiError with INVALID_REGULAR_EXPRESSION if it cannot be read."""

    __slots__ = ("_dfa_states", "_end", "_pattern", "_start", "_visits")

    def __init__(self, pattern: str, alphabet: Chars = TOPIC_CHARS) -> None:
        """`alphabet`: all characters that the names have which it is matched against."""
        self._pattern = pattern
        whole = _Parser(pattern, alphabet).parse()
        self._start, self._end = frozenset((whole.start,)), whole.end
        self._dfa_states: dict[tuple[frozenset[_State], str | None], _DfaState] = {}
        self._visits = 0

    def matches(self, name: str) -> bool:
        current = self._dfa_state(self._start, None)
        for char in name:
            following = current.steps.get(char)
            current = self._step(current, char) if following is None else following
            if not current.states:
                return False
        if current.is_end is None:
            current.is_end = self._end in _spread(current.states, _Place(current.before, None))
        return current.is_end

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that match; ApiError if that would take too long."""
        self._visits = 0
        found = []
        for name in names:
            if self.matches(name):
                found.append(name)
            if self._visits > VISITS_MAX:
                raise _refusal(self._pattern, "it takes too long: repeat less")
        return frozenset(found)

    def _dfa_state(self, states: frozenset[_State], before: str | None) -> _DfaState:
        current = self._dfa_states.get((states, before))
        if current is None:
            if len(self._dfa_states) >= DFA_STATES_MAX:
                self._dfa_states.clear()
            current = self._dfa_states[states, before] = _DfaState(states, before)
        return current

    def _step(self, current: _DfaState, char: str) -> _DfaState:
        reached = _spread(current.states, _Place(current.before, char))
        self._visits += len(reached)
        states = frozenset(state.following[0] for state in reached if state.chars is not None and char in state.chars)
        following = current.steps[char] = self._dfa_state(states, "_" if char in _WORD else "-")
        return following


def _spread(states: Iterable[_State], place: _Place) -> set[_State]:
    """These states and all that can be reached from them without a character."""
    reached = set(states)
    to_do = list(reached)
    while to_do:
        state = to_do.pop()
        if state.chars is not None or (state.condition is not None and not state.condition(place)):
            continue
        for following in state.following:
            if following not in reached:
                reached.add(following)
                to_do.append(following)
    return reached


def _refusal(pattern: str, reason: str) -> ApiError:
    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}..."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{shown!r} is not a regular expression of RE2: {reason}")


# Makes a piece, each time it is called another one.
_Again: TypeAlias = Callable[[], _Piece]
_NOTHING_QUOTED: Final = r"\Q\E"
_FLAGS_ALONE: Final = re.compile(r"\(\?[A-Za-z-]*\)")


class _Parser:
    """Reads a pattern from left to right and builds its machine."""

    def __init__(self, pattern: str, alphabet: Chars) -> None:
        self._pattern = pattern
        self._alphabet = alphabet
        self._position = 0
        self._ignores_case = False
        self._nesting = 0
        self._group_names: set[str] = set()
        self._state_count = 0
        # The characters in all their cases, and what of them was found already: patterns say the same again and again.
        self._forms = [(char, _forms(char)) for char in alphabet]
        self._found: dict[tuple[object, bool], Chars] = {}
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise self._refusal(f"it has more than {PATTERN_LENGTH_MAX} characters")

    def parse(self) -> _Piece:
        piece = self._alternatives()
        if self._position < len(self._pattern):
            raise self._refusal("a parenthesis is closed that was not opened")
        return piece

    def _refusal(self, reason: str) -> ApiError:
        return _refusal(self._pattern, reason)

    # --- the text

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise self._refusal("it ends early")
        self._position += 1
        return char

    def _accept(self, text: str) -> bool:
        if self._pattern.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _until(self, end: str) -> str:
        at = self._pattern.find(end, self._position)
        if at < 0:
            raise self._refusal(f"{end} is missing")
        found = self._pattern[self._position : at]
        self._position = at + len(end)
        return found

    # --- pieces

    def _state(self) -> _State:
        self._state_count += 1
        if self._state_count > STATES_MAX:
            raise self._refusal("it is too large: repeat less")
        return _State()

    def _empty(self) -> _Piece:
        state = self._state()
        return _Piece(state, state)

    def _of_chars(self, chars: Chars) -> _Piece:
        start, end = self._state(), self._state()
        start.chars = chars
        start.following.append(end)
        return _Piece(start, end)

    def _under(self, condition: Callable[[_Place], bool]) -> _Piece:
        start, end = self._state(), self._state()
        start.condition = condition
        start.following.append(end)
        return _Piece(start, end)

    def _one_of(self, pieces: list[_Piece]) -> _Piece:
        start, end = self._state(), self._state()
        for piece in pieces:
            start.following.append(piece.start)
            piece.end.following.append(end)
        return _Piece(start, end)

    @staticmethod
    def _in_a_row(first: _Piece, second: _Piece) -> _Piece:
        first.end.following.append(second.start)
        return _Piece(first.start, second.end)

    def _repeated(self, piece: _Piece) -> _Piece:
        """Any number of times, also none."""
        start, end = self._state(), self._state()
        start.following += [piece.start, end]
        piece.end.following.append(start)
        return _Piece(start, end)

    # --- the grammar

    def _alternatives(self) -> _Piece:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self._refusal(f"it is nested more than {NESTING_MAX} deep")
        ignores_case = self._ignores_case
        pieces = [self._sequence()]
        while self._accept("|"):
            pieces.append(self._sequence())
        # Flags that were set in a group end with it.
        self._ignores_case = ignores_case
        self._nesting -= 1
        return pieces[0] if len(pieces) == 1 else self._one_of(pieces)

    def _sequence(self) -> _Piece:
        piece = self._empty()
        while True:
            self._skip_nothing()
            if self._peek() in ("", "|", ")"):
                return piece
            following = self._quoted() if self._accept("\\Q") else self._repetition(self._read_atom())
            piece = self._in_a_row(piece, following)

    def _read_atom(self) -> _Again:
        """The next atom. A machine has no copies: for a second one its text is read again."""
        start, ignores_case = self._position, self._ignores_case
        first: _Piece | None = self._atom()
        end = self._position

        def again() -> _Piece:
            nonlocal first
            if first is not None:
                piece, first = first, None
                return piece
            after, kept = self._position, self._ignores_case
            names, self._group_names = self._group_names, set()
            self._position, self._ignores_case = start, ignores_case
            piece = self._atom()
            assert self._position == end
            self._position, self._ignores_case, self._group_names = after, kept, names
            return piece

        return again

    def _quoted(self) -> _Piece:
        """What stands between `\\Q` and `\\E`, or the end; what repeats it repeats its last character."""
        text = self._until("\\E") if self._pattern.find("\\E", self._position) >= 0 else self._rest()
        piece = self._empty()
        for char in text[:-1]:
            piece = self._in_a_row(piece, self._of_chars(self._only(char)))
        if not text:
            return piece
        last = self._only(text[-1])
        return self._in_a_row(piece, self._repetition(lambda: self._of_chars(last)))

    def _repetition(self, again: _Again) -> _Piece:
        self._skip_nothing()
        while (bounds := self._bounds()) is not None:
            # Whether as few or as many as possible makes no difference to whether the whole name matches.
            self._accept("?")
            if self._bounds() is not None:
                raise self._refusal("a repetition is repeated")
            again = partial(self._times, again, bounds)
            if not self._skip_nothing():
                break
        return again()

    def _times(self, again: _Again, bounds: tuple[int, int | None]) -> _Piece:
        least, most = bounds
        repeated = self._empty()
        for _ in range(least):
            repeated = self._in_a_row(repeated, again())
        if most is None:
            return self._in_a_row(repeated, self._repeated(again()))
        for _ in range(most - least):
            repeated = self._in_a_row(repeated, self._one_of([again(), self._empty()]))
        return repeated

    def _skip_nothing(self) -> bool:
        """Flags that stand alone, and nothing in quotes, are no atoms: what follows repeats what stands before them."""
        before = self._position
        while True:
            if self._accept(_NOTHING_QUOTED):
                continue
            found = _FLAGS_ALONE.match(self._pattern, self._position)
            if found is None:
                return self._position > before
            self._position += len("(?")
            self._flags()
            assert self._position == found.end()

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        if self._peek() != "{":
            return None
        at = self._position
        self._position += 1
        closed = self._pattern.find("}", at)
        first, comma, second = self._pattern[at + 1 : max(closed, at + 1)].partition(",")
        if closed < 0 or not _is_count(first) or not (_is_count(second) or not second):
            # As in RE2: braces that are no repetition are characters.
            self._position = at
            return None
        least = int(first)
        most = int(second) if second else (None if comma else least)
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._refusal(f"{{{first}{comma}{second}}} is not a repetition of up to {REPEAT_MAX}")
        self._position = closed + 1
        return least, most

    def _atom(self) -> _Piece:
        if self._bounds() is not None:
            raise self._refusal("there is nothing to repeat")
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._of_chars(self._char_class())
            case ".":
                return self._of_chars(self._alphabet)
            case "^":
                return self._under(_ASSERTIONS["A"])
            case "$":
                return self._under(_ASSERTIONS["z"])
            case "{" if self._bounds() is not None:  # a character here, and RE2/J does not let it be repeated
                raise self._refusal("a repetition is repeated")
            case "\\":
                return self._escape()
            case _:
                return self._of_chars(self._only(char))

    def _group(self) -> _Piece:
        kept = self._ignores_case
        if self._accept("?"):
            if self._accept("P<") or (self._peek() == "<" and self._pattern[self._position + 1 :][:1] not in "=!"):
                self._accept("<")
                self._name_group(self._until(">"))
            else:
                self._flags()
        piece = self._alternatives()
        if not self._accept(")"):
            raise self._refusal("a parenthesis is not closed")
        self._ignores_case = kept
        return piece

    def _name_group(self, name: str) -> None:
        if not name or not _WORD.issuperset(name):
            raise self._refusal("the name of a group is not a name")
        if name in self._group_names:
            raise self._refusal(f"two groups are called {name}")
        self._group_names.add(name)

    def _flags(self) -> None:
        """Flags up to `)`, where they hold for the rest of the group, or to `:`, where a group begins."""
        is_on, has_flag = True, False
        while True:
            flag = self._next()
            match flag:
                case ")" | ":":
                    if not is_on and not has_flag:
                        raise self._refusal("no flag follows the minus")
                    return
                case "-" if is_on:
                    is_on, has_flag = False, False
                case "i":
                    self._ignores_case, has_flag = is_on, True
                case "m" | "s" | "U":
                    has_flag = True  # lines and greed: no name has lines, and all ways are tried
                case _:
                    raise self._refusal(f"(?{flag} is not known")

    def _escape(self) -> _Piece:
        if self._peek() and self._peek() in _ASSERTIONS:
            return self._under(_ASSERTIONS[self._next()])
        chars = self._escaped_class()
        return self._of_chars(self._only(self._escaped_char()) if chars is None else chars)

    def _rest(self) -> str:
        rest, self._position = self._pattern[self._position :], len(self._pattern)
        return rest

    # --- characters

    def _where(self, what: object, takes: Callable[[str], bool]) -> Chars:
        """The characters that are taken, in whatever case if that is not to matter. `what` is the name of `takes`."""
        key = (what, self._ignores_case)
        found = self._found.get(key)
        if found is None:
            if self._ignores_case:
                found = frozenset(char for char, forms in self._forms if any(map(takes, forms)))
            else:
                found = frozenset(filter(takes, self._alphabet))
            self._found[key] = found
        return found

    def _only(self, char: str) -> Chars:
        return self._where(char, char.__eq__)

    def _among(self, chars: Chars, *, is_negated: bool) -> Chars:
        found = self._where(chars, chars.__contains__)
        return self._alphabet - found if is_negated else found

    def _escaped_class(self) -> Chars | None:
        """The class that a backslash begins here; None if it begins no class."""
        char = self._peek()
        if char.lower() in _CLASS_LETTERS:
            self._next()
            return self._among(_CLASS_LETTERS[char.lower()], is_negated=char.isupper())
        if char.lower() == "p" and char:
            self._next()
            return self._unicode_class(is_negated=char == "P")
        return None

    def _unicode_class(self, *, is_negated: bool) -> Chars:
        name = self._until("}") if self._accept("{") else self._next()
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if name == "Any":
            found = self._alphabet
        elif name in _CATEGORIES:
            found = self._where(("category", name), lambda char: _is_in_category(char, name))
        elif name in _SCRIPTS:
            found = self._where(("script", name), lambda char: self._script_of(char) == name)
        else:
            raise self._refusal(f"there is no class {name}")
        return self._alphabet - found if is_negated else found

    def _script_of(self, char: str) -> str:
        """Python does not know scripts. Names of topics have letters of one, and what all share."""
        if char in _THIRD_FORMS.values():
            return "Latin"
        if not char.isascii():
            raise self._refusal("scripts are known of ASCII only")
        return "Latin" if char.isalpha() else "Common"

    def _escaped_char(self) -> str:
        """The character that a backslash and what follows stand for, in a class or outside of one."""
        char = self._next()
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            code = self._until("}") if self._accept("{") else self._next() + self._next()
            if not code or not set(code) <= set(hexdigits) or int(code, 16) > 0x10FFFF:
                raise self._refusal(f"\\x{code} is not a character")
            return chr(int(code, 16))
        # One digit alone, unless it is 0, would be a reference back.
        if char == "0" or (char in _OCTAL and self._peek() in _OCTAL):
            octal = char
            while len(octal) < _OCTAL_DIGITS_MAX and self._peek() in _OCTAL:
                octal += self._next()
            return chr(int(octal, 8))
        if char in ascii_letters + digits:
            raise self._refusal(f"\\{char} is not known")
        return char

    def _char_class(self) -> Chars:
        is_negated = self._accept("^")
        chars: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            chars |= self._class_item()
        self._next()
        return self._alphabet - chars if is_negated else frozenset(chars)

    def _class_item(self) -> Chars:
        """A class within a class, a character or a range of them."""
        if self._pattern.startswith("[:", self._position) and self._pattern.find(":]", self._position) >= 0:
            self._position += len("[:")
            return self._posix_class(self._until(":]"))
        if self._pattern.startswith("\\", self._position):
            self._position += 1
            found = self._escaped_class()
            if found is not None:
                return found
            self._position -= 1
        first = last = self._class_char()
        if self._peek() == "-" and self._pattern[self._position + 1 :][:1] not in ("]", ""):
            self._next()
            last = self._class_char()
            if last < first:
                raise self._refusal("a range of characters ends before it begins")
        return self._where((first, last), lambda char: first <= char <= last)

    def _class_char(self) -> str:
        char = self._next()
        return self._escaped_char() if char == "\\" else char

    def _posix_class(self, name: str) -> Chars:
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise self._refusal(f"[:{name}:] is not known")
        return self._among(found, is_negated=name.startswith("^"))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))


def _is_in_category(char: str, name: str) -> bool:
    """Whoever has no category (`Cn`) is in none, not in C."""
    own = unicodedata.category(char)
    return own.startswith(name) and own != "Cn"


def _forms(char: str) -> tuple[str, ...]:
    """A character in all its cases."""
    forms = {char, char.lower(), char.upper(), _THIRD_FORMS.get(char, char)}
    return tuple(forms)
