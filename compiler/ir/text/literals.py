"""Names and attribute values as text: the literals of the `.ir` grammar.

Values are a subset of Python literals, with `block(1)` for a block, `inf` and `nan` for what Python
has no literal for, and `opaque('…')` for the bytes of an attribute of later releases. Parsing walks
a syntax tree and executes nothing.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np

from compiler.errors import BadAttribute, CompileError, UnknownOp
from compiler.ir.model_format.attributes import Opaque
from compiler.ir.model_format.protobuf import dump, parse
from compiler.ir.opdef import find
from compiler.ir.opdef.slots import BOOKKEEPING, Attr
from compiler.ir.program import BlockRef
from compiler.support.limits import MAX_INTEGER_BITS
from compiler.support.syntax_trees import syntax_tree

BARE_NAME = re.compile(r"[A-Za-z_@.](?:[A-Za-z0-9_@.-]|/(?!/))*")
"""A name that needs no quotes; `//` begins a comment."""
QUOTED_NAME = re.compile(r'"(?:[^"\\]|\\.)*"')
"""A name as a JSON string."""

_REFERENCE_DEFAULTS: Mapping[str, Any] = {
    "Scale_in": 1.0,
    "Scale_in_eltwise": 1.0,
    "Scale_out": 1.0,
    "Scale_weights": [1.0],
    "Scale_x": 1.0,
    "Scale_y": 1.0,
    "fuse_brelu_threshold": 6.0,
    "mkldnn_data_type": "float32",
    "op_namescope": "/",
    "scale_out": 1.0,
    "scale_x": 1.0,
    "scale_y": [1.0],
    "workspace_size_MB": 512,
}
"""Defaults of bookkeeping attributes; others are empty or false by default."""


def name_text(name: str) -> str:
    """Format a name, quoted if necessary.

    >>> print(name_text("x@GRAD"), name_text("my var"), name_text("a//b"))
    x@GRAD "my var" "a//b"
    """
    if BARE_NAME.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def parse_name(text: str) -> str:
    """Parse a name; ValueError if a quoted one is not a JSON string."""
    return str(json.loads(text)) if text.startswith('"') else text


def value_text(value: Any) -> str:
    """Format an attribute value; CompileError for any other type of value.

    >>> print(value_text([1, 2.5, "x", True, BlockRef(1), 1e999]))
    [1, 2.5, 'x', True, block(1), inf]
    """
    if type(value) in _PLAIN:
        return repr(value)
    plain: Any = cast("np.generic[Any]", value).item() if isinstance(value, np.generic) else value
    match plain:
        case None | bool():
            return repr(plain)
        case BlockRef():
            return f"block({int(plain)})"
        case Opaque():
            return f"opaque('{dump(plain.message).hex()}')"
        case int():
            return int.__repr__(plain)
        case float():
            return float.__repr__(plain)
        case str():
            return str.__repr__(plain)
        case list() | tuple():
            return _items_text(cast("list[Any] | tuple[Any, ...]", plain))
        case _:
            raise CompileError(f"{plain!r} cannot be an attribute: a {type(plain).__name__}")


def _items_text(items: list[Any] | tuple[Any, ...]) -> str:
    text = ", ".join(value_text(item) for item in items)
    if isinstance(items, list):
        return f"[{text}]"
    return f"({text},)" if len(items) == 1 else f"({text})"


def nondefault_attributes(kind: str, attrs: Mapping[str, Any]) -> dict[str, str]:
    """Format the attributes that are not at their defaults, sorted by name.

    Numbers have the type that the op declares: 2 for the float `scale` is `2.0`. All attributes of
    an unregistered op are included.
    """
    declared = _declared(kind)
    names = [name for name in sorted(attrs) if not _equals_default(name, declared, attrs)]
    texts = {name: _text(kind, name, declared, attrs) for name in names}
    return {name: text for name, text in texts.items() if not _is_default(name, text, declared)}


def attributes_text(kind: str, attrs: Mapping[str, Any]) -> str:
    """Format the non-default attributes as a Python dict, or as "" if there are none."""
    texts = nondefault_attributes(kind, attrs).items()
    return "{" + ", ".join(f"{name!r}: {text}" for name, text in texts) + "}" if texts else ""


def parse_attributes(text: str) -> dict[str, Any]:
    """Parse attributes; ValueError with the reason if the text is not such a dict.

    >>> parse_attributes("{'axis': -1, 'sub_block': block(2)}")
    {'axis': -1, 'sub_block': 2}
    """
    try:
        tree = syntax_tree(text, "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("is not a Python literal") from error
    if not isinstance(tree, ast.Dict):
        raise ValueError("is no dict")
    names = [_key(key) for key in tree.keys]
    if len(set(names)) < len(names):
        raise ValueError(f"has {max(names, key=names.count)!r} twice")
    return {name: _value(node) for name, node in zip(names, tree.values, strict=True)}


def _declared(kind: str) -> Mapping[str, Attr[Any]]:
    try:
        return find(kind).attrs
    except UnknownOp:
        return {}


def _bound(
    kind: str, name: str, declared: Mapping[str, Attr[Any]], attrs: Mapping[str, Any]
) -> Any:
    """Return the value in its declared type; unchanged if the op does not accept it."""
    if name not in declared:
        return attrs[name]
    try:
        return declared[name].value(kind, attrs)
    except BadAttribute:
        return attrs[name]


def _text(kind: str, name: str, declared: Mapping[str, Attr[Any]], attrs: Mapping[str, Any]) -> str:
    value = _bound(kind, name, declared, attrs)
    return value_text(_shortest(value) if name in declared else value)


def _shortest(value: Any) -> Any:
    """Return the shortest decimal number that rounds to a float32: 0.1.

    >>> _shortest([0.10000000149011612, 2])
    [0.1, 2]
    """
    if isinstance(value, list):
        return [_shortest(item) for item in cast("list[Any]", value)]
    return _shortest_float(value.hex()) if isinstance(value, float) else value


@lru_cache(4096)
def _shortest_float(digits: str) -> float:
    """The same for a number in hexadecimal digits, which keep 0.0 and -0.0 apart."""
    return float(str(np.float32(float.fromhex(digits))))


def _is_default(name: str, text: str, declared: Mapping[str, Attr[Any]]) -> bool:
    if name in declared:
        default = declared[name].default
        return default is not None and text == _default_text(declared[name])
    if name in _REFERENCE_DEFAULTS:
        return text == value_text(_REFERENCE_DEFAULTS[name])
    return name in BOOKKEEPING and text in _EMPTY


@lru_cache(4096)
def _default_text(declared: Attr[Any]) -> str:
    return value_text(_shortest(declared.default))


def _equals_default(name: str, declared: Mapping[str, Attr[Any]], attrs: Mapping[str, Any]) -> bool:
    """Return whether a value is the default, as is seen without its text."""
    value = attrs[name]
    if name in declared:
        return _have_one_text(value, declared[name].default)
    may_be_empty = name in BOOKKEEPING and name not in _REFERENCE_DEFAULTS
    return may_be_empty and not value and type(value) in _EMPTY_TYPES


def _have_one_text(value: Any, other: Any) -> bool:
    """Return whether values are equal and of a type whose equal values have one text: 0.0 and -0.0
    have two.
    """
    if type(value) is not type(other):
        return False
    if isinstance(value, list):
        items, others = cast("list[Any]", value), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_have_one_text, items, others))
    is_exact = type(value) in _EXACT or (isinstance(value, float) and value != 0.0)
    return is_exact and value == other


_PLAIN = frozenset({bool, int, float, str})
_EXACT = frozenset({bool, int, str})
_EMPTY_TYPES = frozenset({bool, int, str, list, type(None)})
_EMPTY = ("False", "0", "0.0", "''", "[]", "None")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("has a key that is not a string")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None | bool() | float() | str() as value):
            return value
        case ast.Constant(value=int(value)):
            return _bounded(value)
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Name() as operand):
            return _negative(_value(operand))
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Call(ast.Name(id="block"), [ast.Constant(value=int(index))], []):
            return BlockRef(index)
        case ast.Call(ast.Name(id="opaque"), [ast.Constant(value=str(data))], []):
            return Opaque(parse(bytes.fromhex(data), "OpDesc.Attr"))
        case _:
            raise ValueError(f"has {type(node).__name__} in place of a value")


def _bounded(value: int) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError(f"has a number of more than {MAX_INTEGER_BITS} bits")
    return value


def _negative(value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return -value
    raise ValueError(f"has -{value!r}, which is not a number")
