"""`paddle.compat`: texts, bytes and numbers as scripts of release 1.8 convert them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

__all__ = [
    "floor_division",
    "get_exception_message",
    "long_type",
    "round",
    "to_bytes",
    "to_text",
]

long_type = int
C = TypeVar("C", list[object], set[object], dict[object, object])


def to_text(obj: object, encoding: str = "utf-8", inplace: bool = False) -> object:
    """Bytes as text, alone or in a list, set or dict, which is changed itself if `inplace`.

    None, texts and numbers stay as they are; TypeError for anything else.

    >>> to_text([b"a", "b", None])
    ['a', 'b', None]
    """
    return _mapped(obj, lambda each: _text(each, encoding), inplace)


def to_bytes(obj: object, encoding: str = "utf-8", inplace: bool = False) -> object:
    """Text as bytes, alone or in a list, set or dict, which is changed itself if `inplace`.

    None and bytes stay as they are; TypeError for anything else.

    >>> to_bytes({"a"})
    {b'a'}
    """
    return _mapped(obj, lambda each: _bytes(each, encoding), inplace)


def _text(value: object, encoding: str) -> object:
    if isinstance(value, bytes):
        return value.decode(encoding)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"to_text takes bytes and texts, not {type(value).__name__}")


def _bytes(value: object, encoding: str) -> object:
    if isinstance(value, str):
        return value.encode(encoding)
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"to_bytes takes texts and bytes, not {type(value).__name__}")


def _mapped(value: object, convert: Callable[[object], object], inplace: bool) -> object:
    if isinstance(value, list):
        items = cast(list[object], value)
        return _renewed(items, type(items)(map(convert, items)), items.extend, inplace)
    if isinstance(value, set):
        members = cast(set[object], value)
        return _renewed(members, type(members)(map(convert, members)), members.update, inplace)
    if isinstance(value, dict):
        table = cast(dict[object, object], value)
        new = {convert(key): convert(item) for key, item in table.items()}
        return _renewed(table, new, table.update, inplace)
    return convert(value)


def _renewed(old: C, new: C, refill: Callable[[C], None], inplace: bool) -> C:
    """The new container; with `inplace`, the old one filled by its method `refill`."""
    if not inplace:
        return new
    old.clear()
    refill(new)
    return old


def round(x: float, d: int = 0) -> float:
    """A number with `d` digits after the point, halves away from zero.

    >>> round(2.5), round(-0.125, 2)
    (3.0, -0.13)
    """
    scale = 10**d
    return math.copysign(math.floor(abs(x) * scale + 0.5) / scale, x)


def floor_division(x: float, y: float) -> float:
    """The quotient, rounded down.

    >>> floor_division(7, 2)
    3
    """
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """The message of an exception.

    >>> get_exception_message(ValueError("too long"))
    'too long'
    """
    return str(exc)
