"""Deduplication of kernels that differ only in names.

A network has many layers of one kind, so that many of its kernels have the same text with other
operands. The names of a kernel, its parameters and variables, and its comments do not affect its
code: such kernels are emitted once, compiled once and launched often.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_DEFINED = re.compile(r"def (\w+)\(([^)]*)\)")
_BOUND = re.compile(r"\s*(?:for )?(\w+(?:, \w+)*) (?:=|in) ")
_WORD = re.compile(r'"[^"]*"|\'[^\']*\'|\.[A-Za-z_]\w*|(?<!\w)[A-Za-z_]\w*')

Key = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, object], ...]]
"""The canonical form of a kernel: text, types and constants, with numbered names."""


def structural_key(
    lines: Iterable[str], types: Mapping[str, str], constants: Mapping[str, object]
) -> Key:
    r"""Return a key that is equal for kernels that differ only in names and comments.

    `lines` are the kernel's source, whose comments and decorators are ignored; `types` and
    `constants` belong to parameters by name, or to compiler options, which keep their names.

    >>> text = "def {0}({1}, LANES: tl.constexpr):\n    a = tl.load({1})\n    tl.store({1}, a.a)"
    >>> keys = [structural_key(text.format(*names).split("\n"), {names[1]: "*fp32"}, {"LANES": 4})
    ...         for names in (("relu", "x"), ("relu_1", "y"))]
    >>> keys[0] == keys[1], keys[0][1:]
    (True, ((('v1', '*fp32'),), (('v2', 4),)))
    """
    code_lines = [line for line in lines if line.strip() and line.lstrip()[0] not in "#@"]
    names = _numbered_names(code_lines)
    text = "\n".join(
        _WORD.sub(lambda word: names.get(word[0], word[0]), line) for line in code_lines
    )
    return (
        text,
        tuple((names.get(name, name), kind) for name, kind in types.items()),
        tuple((names.get(name, name), value) for name, value in constants.items()),
    )


def _numbered_names(lines: Sequence[str]) -> dict[str, str]:
    """A numbered name for each name that a kernel defines, in order of definition."""
    names: dict[str, None] = {}
    for line in lines:
        defined, bound = _DEFINED.match(line), _BOUND.match(line)
        if defined is not None:
            parameters = defined[2].split(",")
            names |= dict.fromkeys([defined[1], *(_name(parameter) for parameter in parameters)])
        elif bound is not None:
            names |= dict.fromkeys(bound[1].split(", "))
    return {name: f"v{number}" for number, name in enumerate(names)}


def _name(parameter: str) -> str:
    return parameter.partition(":")[0].strip()
