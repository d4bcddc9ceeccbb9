"""Kernels that differ in nothing but names are one kernel.

A network has many layers of one kind, so that many of its kernels are the same text over other
operands. What a kernel is called, what its parameters and the values in it are called, and what its
comments say makes no other code: such kernels are written once, compiled once and launched often.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_DEFINED = re.compile(r"def (\w+)\(([^)]*)\)")
_BOUND = re.compile(r"\s*(?:for )?(\w+(?:, \w+)*) (?:=|in) ")
_WORD = re.compile(r'"[^"]*"|\'[^\']*\'|\.[A-Za-z_]\w*|(?<!\w)[A-Za-z_]\w*')

Key = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, object], ...]]
"""What is equal for kernels that are one: text, types and constants, with numbers for names."""


def likeness(
    lines: Iterable[str], types: Mapping[str, str], constants: Mapping[str, object]
) -> Key:
    r"""What equal kernels have in common, whatever they and what is in them are called.

    `lines` are those of the kernel, of which neither comments nor decorators count; `types` and
    `constants` belong to parameters by name, or to options of the compiler, which keep theirs.

    >>> text = "def {0}({1}, LANES: tl.constexpr):\n    a = tl.load({1})\n    tl.store({1}, a.a)"
    >>> keys = [likeness(text.format(*names).split("\n"), {names[1]: "*fp32"}, {"LANES": 4})
    ...         for names in (("relu", "x"), ("relu_1", "y"))]
    >>> keys[0] == keys[1], keys[0][1:]
    (True, ((('v1', '*fp32'),), (('v2', 4),)))
    """
    told = [line for line in lines if line.strip() and line.lstrip()[0] not in "#@"]
    names = _own_names(told)
    text = "\n".join(_WORD.sub(lambda word: names.get(word[0], word[0]), line) for line in told)
    return (
        text,
        tuple((names.get(name, name), kind) for name, kind in types.items()),
        tuple((names.get(name, name), value) for name, value in constants.items()),
    )


def _own_names(lines: Sequence[str]) -> dict[str, str]:
    """A number for each name that a kernel gives, in the order it gives them."""
    found: dict[str, None] = {}
    for line in lines:
        defined, bound = _DEFINED.match(line), _BOUND.match(line)
        if defined is not None:
            parameters = defined[2].split(",")
            found |= dict.fromkeys([defined[1], *(_name(each) for each in parameters)])
        elif bound is not None:
            found |= dict.fromkeys(bound[1].split(", "))
    return {name: f"v{number}" for number, name in enumerate(found)}


def _name(parameter: str) -> str:
    return parameter.partition(":")[0].strip()
