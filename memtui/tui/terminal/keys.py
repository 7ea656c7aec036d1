"""What a terminal sends to its program for a key or a paste."""

from __future__ import annotations

import re

_PLAIN = {
    "enter": b"\r",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "backspace": b"\x7f",
    "escape": b"\x1b",
    "shift+escape": b"\x1b",
    "space": b" ",
    "ctrl+@": b"\x00",
    "ctrl+space": b"\x00",
    "ctrl+backslash": b"\x1c",
    "ctrl+right_square_bracket": b"\x1d",
    "ctrl+circumflex_accent": b"\x1e",
    "ctrl+underscore": b"\x1f",
}

#: Keys that end in a letter: `ESC [ letter`, `ESC O letter` in application mode, `ESC [ 1 ; modifiers letter`.
_LETTERED = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
_FUNCTION_LETTERED = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}

#: Keys that end in a tilde: `ESC [ number ~`.
_NUMBERED = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    **{f"f{n}": code for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24))},
}

_MODIFIERS = {"shift": 1, "alt": 2, "ctrl": 4}

_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_NOT_PASTED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def encode_key(key: str, character: str | None, *, application_cursor: bool) -> bytes | None:
    """The bytes for a key as Textual names it; None for one that no terminal sends."""
    if key in _PLAIN:
        return _PLAIN[key]
    *prefixes, name = key.split("+")
    if not all(prefix in _MODIFIERS for prefix in prefixes) or not name:
        prefixes = []  # the plus key itself, or something unheard of
    modifiers = sum(_MODIFIERS[prefix] for prefix in set(prefixes))
    special = _special(name, modifiers, application_cursor)
    if special is not None:
        return special
    if modifiers & _MODIFIERS["ctrl"]:
        if len(name) == 1 and name.isascii() and name.isalpha():
            code = bytes([ord(name.lower()) & 0x1F])
            return b"\x1b" + code if modifiers & _MODIFIERS["alt"] else code
        return None
    if not character or not character.isprintable():
        return None
    encoded = character.encode("utf-8", "ignore")
    return b"\x1b" + encoded if modifiers & _MODIFIERS["alt"] else encoded


def _special(name: str, modifiers: int, application_cursor: bool) -> bytes | None:
    if name in _NUMBERED:
        return b"\x1b[%d;%d~" % (_NUMBERED[name], modifiers + 1) if modifiers else b"\x1b[%d~" % _NUMBERED[name]
    letter = _LETTERED.get(name) or _FUNCTION_LETTERED.get(name)
    if letter is None:
        return None
    if modifiers:
        return f"\x1b[1;{modifiers + 1}{letter}".encode()
    return (b"\x1bO" if application_cursor or name in _FUNCTION_LETTERED else b"\x1b[") + letter.encode()


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """The bytes for pasted text: line ends as the enter key sends them, and nothing that could end the brackets."""
    plain = _NOT_PASTED.sub("", text.replace("\r\n", "\r").replace("\n", "\r"))
    encoded = plain.encode("utf-8", "ignore")
    return _PASTE_BEGIN + encoded + _PASTE_END if bracketed else encoded
