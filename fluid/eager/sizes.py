"""Shapes of eager variables."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

__all__ = ["Sizes"]

_Sizes: TypeAlias = tuple[int, ...]


class Sizes(tuple[int, ...]):
    """A shape: a tuple that prints as a list, equals one and can be added to one.

    >>> Sizes((2, 3)), Sizes((2, 3)) == [2, 3], Sizes((2,)) + [1]
    ([2, 3], True, [2, 1])
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return _plain(self) == (tuple(_listed(other)) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_plain(self))

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else (*self, *other)

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]

    def __getitem__(self, item: object) -> Any:
        part = cast(Any, _plain(self))[item]
        return Sizes(part) if isinstance(item, slice) else part

    def __repr__(self) -> str:
        return repr(list(self))

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


def _plain(sizes: _Sizes) -> _Sizes:
    return (*sizes,)


def _listed(value: Any) -> list[Any]:
    return value
