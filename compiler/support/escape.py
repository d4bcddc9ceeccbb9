r"""Text of models and users inside generated text: one escaping function per language.

A variable name or a line of a user's script may contain anything: line breaks, quotes, markup,
terminal control sequences. All code that inserts one into Python, DOT, HTML, JSON or terminal
output calls the function here for that language; `expect_one_line` checks lines of code.

| language | function |
|---|---|
| Python literal | `repr`, which escapes line breaks and control characters itself |
| Python comment, a line of a message or a table | `one_line` |
| text for a terminal, of several lines | `printable_lines` |
| DOT | `dot_string` |
| HTML | `html_text`, and `script_json` for data that its script reads |
| JSON, a value a line | `json_line` |
| `.ir` text | `compiler.ir.text.literals.name_text`, since names are read back |
"""

from __future__ import annotations

import html
import json
from typing import Any, cast


def one_line(text: str) -> str:
    r"""Escape line ends, control characters and invisible characters in a text.

    >>> one_line("a\nimport os"), one_line("\x1b[2J"), one_line("naïve")
    ('a\\nimport os', '\\x1b[2J', 'naïve')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    r"""Escape control characters in a text of several lines; line feeds and tabs remain.

    >>> printable_lines("a\n\tb\x07")
    'a\n\tb\\x07'
    """
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)


def expect_one_line(text: str) -> str:
    r"""Return the text; raise ValueError if it has a line end or other control character.

    >>> expect_one_line("a\nb")
    Traceback (most recent call last):
    ValueError: a line of code contains '\n': escape it with one_line(); 'a\nb'
    """
    if text.isprintable():
        return text
    character = next((c for c in text if not c.isprintable() and c != "\t"), "")
    if character:
        hint = "escape it with one_line()"
        raise ValueError(f"a line of code contains {character!r}: {hint}; {text[:80]!r}")
    return text


def dot_string(*lines: str) -> str:
    r"""Return a quoted DOT string that shows these lines literally.

    >>> print(dot_string('a"]', "b\\n"))
    "a\"]\nb\\n"
    """
    return '"' + "\\n".join(map(_dot_line, lines)) + '"'


def _dot_line(text: str) -> str:
    """Escape quotes, backslashes and entities of a line for Graphviz."""
    shown = one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return shown.replace("&", "&amp;")


def html_text(text: str) -> str:
    """Escape a text for an HTML element or a quoted attribute.

    >>> html_text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(printable_lines(text))


def json_line(value: Any) -> str:
    r"""Return a value as JSON on one line; unprintable characters in strings are escaped.

    >>> print(json_line({"name": "a\u2028b"}))
    {"name": "a\u2028b"}
    """
    return _json_text(json.dumps(value, ensure_ascii=False))


def script_json(value: Any) -> str:
    r"""Return JSON for the inside of a script element: nothing in it ends the script.

    Strings keep line ends and tabs; other unprintable characters appear as escape sequences.

    >>> script_json("</script>\x07")
    '"\\u003c/script\\u003e\\\\x07"'
    """
    text = json.dumps(_shown(value), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _json_text(text: str) -> str:
    """Replace every unprintable character of a JSON text by its JSON escape sequence."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _shown(value: Any) -> Any:
    """Escape unprintable characters in all strings of plain data."""
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {_shown(key): _shown(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in cast("list[Any]", value)]
    return value
