"""Hostile strings by intent: to run Python, to escape a quoted text, to control a terminal.

Each that contains code would set the environment variable `CANARY`; if it is set, a string of a
model was executed.
"""

from __future__ import annotations

import builtins
import keyword
import os
from collections.abc import Callable, Sequence

CANARY = "FLUID_COMPILER_CANARY"
"""The environment variable that code in a payload would set."""

CODE = f"__import__('os').environ.__setitem__('{CANARY}','executed')"
BREAKS = "\n\r\f\v\x1c\x1d\x1e\x85\u2028\u2029"
"""Line terminators of Python's tokenizer or of `str.splitlines`."""

PAYLOADS: dict[str, str] = {
    **{f"line break {ord(c):#x}": f"{c}{CODE}{c}" for c in BREAKS},
    **{f"line break {ord(c):#x}, indented": f"{c}        {CODE}{c}        " for c in BREAKS},
    "line break, indented once": f"\n    {CODE}\n    ",
    "line breaks of two characters": f"\r\n{CODE}\r\n",
    "NUL": f"\0{CODE}\0",
    "single quote": f"'+str({CODE})+'",
    "double quote": f'"+str({CODE})+"',
    "three single quotes": f"'''\n{CODE}\n'''",
    "three double quotes": f'"""\n{CODE}\n"""',
    "end of a call": f'"); import os; {CODE}; ("',
    "end of a list": f"']; {CODE}; ['",
    "backslash": "\\",
    "backslash and quotes": "\\'\\\"",
    "backslash and line break": f"\\\n{CODE}",
    "escape": "\\x0a\\N{LINE FEED}\\u000a",
    "script": f"</script><script>document.title='{CANARY}'</script>",
    "image": f"<img src=x onerror=\"document.title='{CANARY}'\">",
    "HTML comment": "<!--<script>]]>&lt;&#10;",
    "attribute": '" onload="alert(1)" x="',
    "end of a label": '"]; evil [label="evil", URL="javascript:alert(1)"]; "',
    "HTML-like label": "<<b>evil</b>>",
    "record label": "{a|b}\\N\\G\\l",
    "title of a terminal": "\x1b]0;evil\x07",
    "clear screen": "\x1b[2J\x1b[H",
    "eight-bit control": "\x9b2J\x9d0;evil\x9c",
    "backspaces": "\b\b\b\x7f",
    "version": "x#1",
    "comment": "# x",
    "text comment": "  // evil.py:1",
    "host": "x@host",
    "device": "x@device",
    "slot": "x @s0[128]",
    "kernel": "x @k1",
    "equation": "y = evil(x)",
    "braces": "{__import__('os')}{0}{}",
    "percent": "%s%d%n%(x)s",
    "template": "$source ${data}",
    "bidirectional": "\u202e\u2066evil\u2069\u202c",
    "invisible": "\u200b\u200d\ufeff\u00ad",
    "slashes": "a/b",
    "colon": "a:b",
    "spaces": "  a  b  ",
    "noncharacter": "\ufffe\U0010ffff",
    "other alphabet": "переменная",
    "ligature": "\ufb01\u2460",
}
"""Prefixes of a number, so that each name remains unique."""

_OWN = (
    "np tl torch triton bind step take params result lane live LANES INDEX main NAME FEEDS self "
    "@EMPTY@x __builtins__ __name__"
).split()
WORDS = tuple(dict.fromkeys([*keyword.kwlist, *dir(builtins), *_OWN]))
"""Names with a meaning in generated code."""

COLLIDING = ".:/-@!"
"""Characters that map to the same character of a Python name."""

Names = Callable[[int], str]
"""A unique name for each number."""


def families() -> dict[str, Names]:
    """Families of variable names, by intent."""
    names_by_intent: dict[str, Names] = {what: _before(text) for what, text in PAYLOADS.items()}
    names_by_intent |= {f"{what}, at the end": _behind(text) for what, text in PAYLOADS.items()}
    return names_by_intent | {"words of Python": _word, "collisions": _colliding}


def _before(text: str) -> Names:
    return lambda number: f"{text}{number}"


def _behind(text: str) -> Names:
    return lambda number: f"v{number}{text}"


def _word(number: int) -> str:
    return WORDS[number % len(WORDS)] + "'" * (number // len(WORDS))


def _colliding(number: int) -> str:
    base = len(COLLIDING)
    digits = (number // base**place % base for place in range(6))
    return f"a{''.join(COLLIDING[digit] for digit in digits)}b"


def executed() -> bool:
    """Whether code of a payload ran in this process since the last call."""
    return os.environ.pop(CANARY, None) is not None


def ends_lines(text: str) -> bool:
    """Whether a text has several lines, or a character that others treat as a line end."""
    return len(text.splitlines()) > 1 or any(c in text for c in (*BREAKS, "\0"))


def steers(text: str, allowed: Sequence[str] = ("\n", "\t")) -> list[str]:
    """The characters of a text that control a terminal or hide text."""
    return sorted({c for c in text if not c.isprintable() and c not in allowed})
