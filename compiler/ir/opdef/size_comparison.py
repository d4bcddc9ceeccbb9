"""Comparisons of sizes, some of which are unknown at compile time.

Inference compares sizes by `differ`, `is_less` and the like, which are false where a size is not
known yet. Such comparisons are what an op requires of the sizes that a module is bound to: code
generation collects them (`undecided`) and writes them into `bind`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from math import prod

from compiler.errors import ShapeError
from compiler.ir.dims import Dim, Size, is_multiple
from compiler.ir.types import TensorType
from compiler.support.dataclass import dataclass
from compiler.support.limits import MAX_BYTES


class Relation(Enum):
    """How a size must be related to others: a Python expression that is true if it is not, and what
    is expected of it instead, as an f-string.
    """

    EQUAL = "{0} != {1}", "{{{1}}}"
    AT_LEAST = "{0} < {1}", "at least {{{1}}}"
    SLICE = "{0} != len(range({1})[{2}:{3}])", "{{len(range({1})[{2}:{3}])}}"
    BROADCASTS = "{0} not in (1, {1})", "1 or {{{1}}}"
    MULTIPLE = "({0}) % ({1}) if {1} else {0}", "a multiple of {{{1}}}"


@dataclass(frozen=True)
class Requirement:
    """What an op requires of a size, the first of `sizes`, by the others."""

    relation: Relation
    sizes: tuple[Size, ...]

    @property
    def violation(self) -> str:
        """A Python expression of the sizes that is true if they violate it."""
        return self.relation.value[0].format(*self.sizes)

    @property
    def expected(self) -> str:
        """What the size is expected to be, as an f-string of the sizes."""
        return self.relation.value[1].format(*self.sizes)


_UNDECIDED: ContextVar[dict[Requirement, None] | None] = ContextVar("undecided", default=None)


def differ(a: Size, b: Size) -> bool:
    """True if two sizes that must be equal are known to differ: two numbers, or two declared names.

    >>> differ(3, 4), differ(3, 3), differ(Dim.named("N"), Dim.named("M"))
    (True, False, True)
    """
    if a == b or known_to_differ(a, b):
        return a != b
    _require(Relation.EQUAL, *((a, b) if isinstance(a, Dim) else (b, a)))
    return False


def known_to_differ(a: Size, b: Size) -> bool:
    """True if two sizes, which need not be equal, are known to differ."""
    return a != b and _is_plain(a) == _is_plain(b) != ""


def is_less(size: Size, least: Size) -> bool:
    """True if a size is known to be less than it must be at least.

    >>> is_less(3, 4), is_less(4, 4), is_less(Dim.named("N"), 4)
    (True, False, False)
    """
    if isinstance(size, int) and isinstance(least, int):
        return size < least
    if size != least:
        _require(Relation.AT_LEAST, size, least)
    return False


def differs_from_slice(length: Size, size: Size, start: int, end: int) -> bool:
    """True if a size is known not to be the number of indices `start:end` of an axis.

    >>> differs_from_slice(2, 5, -2, 100), differs_from_slice(3, 5, -2, 100)
    (False, True)
    """
    if isinstance(size, int):
        return differ(length, len(range(size)[start:end]))
    _require(Relation.SLICE, length, size, start, end)
    return False


def is_not_broadcast(size: Size, target: Size) -> bool:
    """True if a size is known to be neither 1 nor that which it is broadcast to.

    >>> is_not_broadcast(3, 4), is_not_broadcast(1, 4), is_not_broadcast(Dim.named("N"), 4)
    (True, False, False)
    """
    if isinstance(size, int) and isinstance(target, int):
        return size not in (1, target)
    if size not in (1, target):
        _require(Relation.BROADCASTS, size, target)
    return False


def is_no_multiple(size: Size, part: Size) -> bool:
    """True if a size is known not to be a multiple of another; 0 is the only one of 0.

    >>> is_no_multiple(9, 2), is_no_multiple(0, 0), is_no_multiple(Dim.named("N") * 4, 2)
    (True, False, False)
    """
    if isinstance(size, int) and isinstance(part, int):
        return bool(size % part if part else size)
    if size != part and not (isinstance(part, int) and is_multiple(size, part)):
        _require(Relation.MULTIPLE, size, part)
    return False


@contextmanager
def undecided() -> Generator[dict[Requirement, None]]:
    """Collect the comparisons that depend on sizes not known yet."""
    requirements = dict[Requirement, None]()
    token = _UNDECIDED.set(requirements)
    try:
        yield requirements
    finally:
        _UNDECIDED.reset(token)


def _require(relation: Relation, *sizes: Size) -> None:
    requirements = _UNDECIDED.get()
    if requirements is not None:
        requirements[Requirement(relation, sizes)] = None


def _is_plain(size: Size) -> str:
    """The kind of a plain size; empty for unknown and computed ones."""
    if isinstance(size, int):
        return "number"
    return "name" if size.known and size == Dim.named(size.names[0]) else ""


def shapes_differ(a: TensorType, b: TensorType) -> bool:
    """True if two types that must have one shape have other ranks, or sizes known to differ."""
    return a.rank != b.rank or any(map(differ, a.shape, b.shape))


def addressable(name: str, type: TensorType) -> TensorType:
    """The type of a variable. Raises ShapeError if it is larger than MAX_BYTES; an empty axis
    counts as one element.
    """
    numel = prod(max(size, 1) for size in type.shape if isinstance(size, int))
    if numel * type.dtype.itemsize > MAX_BYTES and not type.is_array:
        raise ShapeError(f"variable {name!r} is {type}, larger than any memory")
    return type
