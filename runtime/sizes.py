"""Names for the dynamic sizes of feeds, so that one Module serves every batch.

Equal sizes get one name: a batch of another size gets the same names, and the program is compiled
once. Sequences need more care: the total number of rows of a batch of sequences is unrelated to
other feeds, so it has a separate name, shared only by feeds of the same LoD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, count
from typing import TypeAlias

import numpy as np

from compiler.ir.dims import Dim
from compiler.ir.types import Array, DType, Shape

LOD = "@LOD"
"""Separates the name of a feed from the level number of its LoD."""

LETTERS = "NMKLPQRST"
"""The first names of dynamic sizes; N1, M1 and so on follow."""

Pattern: TypeAlias = dict[str, tuple[int | str | DType, ...]]
"""A shape signature: the shapes of feeds by name; an entry is a number or a dynamic size's name.

The entry of a feed that does not have the declared dtype starts with its dtype.
"""


def name_sizes(
    declared: Mapping[str, Shape],
    given: Mapping[str, Sequence[int]],
    lod_owners: Mapping[str, str] | None = None,
) -> Pattern:
    """Return the shapes of feeds with names for the dynamic sizes of a program.

    Equal sizes get the same name, in the order of the feeds' names and then of the axes, so that
    another batch size gets the same names. Next to other sizes a 1 remains 1, since it may
    broadcast. The levels of a LoD, `x@LOD0`, name the number of their sequences; `lod_owners` maps
    a feed to the first one that has its LoD.

    >>> any = Dim.named("?")
    >>> name_sizes({"y": (any, 1), "x": (any, 13)}, {"x": (20, 13), "y": (20, 1)})
    {'x': ('N', 13), 'y': ('N', 1)}
    >>> name_sizes({"x": (any, any), "y": (any, any)}, {"x": (4, 6), "y": (1, 4)})
    {'x': ('N', 'M'), 'y': (1, 'N')}
    >>> name_sizes({"y": (any, 1), "w": (any, 1)}, {"w": (9, 1), "w@LOD0": (4,), "y": (3, 1)})
    {'w': ('M', 1), 'y': ('N', 1), 'w@LOD0': ('N + 1',)}
    """
    levels = {name: given[name][0] - 1 for name in sorted(given) if LOD in name}
    rows = {name.partition(LOD)[0] for name in levels}
    plain = [pair for name in sorted(declared) for pair in _open(name, declared, given, rows)]
    numbers = dict.fromkeys([number for _, _, number in plain] + list(levels.values()))
    if len(numbers) > 1 and 1 not in levels.values():
        numbers.pop(1, None)
    letters = _letters()
    names = {number: next(letters) for number in numbers}
    own: dict[str, str] = {}
    for name in sorted(rows):
        other = given[name][0] if given[name][0] in numbers else None
        owner_size = None if other is None or other in levels.values() else names[other]
        lod_owner = (lod_owners or {}).get(name, name)
        own[name] = owner_size or own.get(lod_owner) or next(letters)
    entries = {(name, axis): names.get(number, number) for name, axis, number in plain}
    entries |= {(name, 0): letter for name, letter in own.items() if _is_open(declared[name], 0)}
    shapes: Pattern = {
        name: tuple(entries.get((name, axis), size) for axis, size in enumerate(given[name]))
        for name in sorted(declared)
    }
    return shapes | {name: (f"{names.get(n, n)} + 1",) for name, n in levels.items()}


def with_types(pattern: Pattern, types: Mapping[str, DType]) -> Pattern:
    """Return the signature in which the feeds of `types` start with their dtypes."""
    return {
        name: (types[name], *shape) if name in types else shape for name, shape in pattern.items()
    }


def with_equal_rows(pattern: Pattern, given: Mapping[str, Sequence[int]]) -> Pattern:
    """Return the signature in which sequences of equally many rows have one name for them.

    A program that adds the rows of two feeds cannot be compiled for any numbers of rows. Whether
    equal numbers are a coincidence is only known after compiling.

    >>> pattern = {"x": ("K", 1), "y": ("L", 1), "x@LOD0": ("N + 1",), "y@LOD0": ("M + 1",)}
    >>> given = {"x": (9, 1), "y": (9, 1), "x@LOD0": (3,), "y@LOD0": (5,)}
    >>> with_equal_rows(pattern, given)["y"]
    ('K', 1)
    """
    first: dict[int, int | str | DType] = {}
    names = dict[int | str | DType, int | str | DType]()
    for feed in sorted({name.partition(LOD)[0] for name in pattern if LOD in name}):
        rows = pattern[feed][0]
        if isinstance(rows, str):
            names[rows] = first.setdefault(given[feed][0], rows)
    return {name: tuple(names.get(size, size) for size in shape) for name, shape in pattern.items()}


def with_numbers(pattern: Pattern, given: Mapping[str, Sequence[int]]) -> Pattern:
    """Return the signature in which only the leading sizes of feeds are dynamic, the others
    numbers.

    >>> with_numbers({"x": ("N", "M"), "y": ("M",)}, {"x": (2, 3), "y": (3,)})
    {'x': ('N', 3), 'y': ('M',)}
    """
    return {name: (*shape[:1], *given[name][1:]) for name, shape in pattern.items()}


def with_products(pattern: Pattern, given: Mapping[str, Sequence[int]]) -> Pattern:
    """Return the signature with a size that equals the product of two others replaced by the
    product.

    A program that flattens [N, M] to rows cannot be compiled for any number of rows, but for N·M
    rows it can. Whether the product is a coincidence is only known after compiling.

    >>> pattern = {"label": ("N", 1), "words": ("M", "K")}
    >>> with_products(pattern, {"label": (24, 1), "words": (4, 6)})
    {'label': ('M*K', 1), 'words': ('M', 'K')}
    """
    entries = [pair for name in pattern for pair in zip(pattern[name], given[name], strict=True)]
    numbers = {name: size for name, size in entries if isinstance(name, str) and name.isalnum()}
    levels = {name for name, _ in entries if isinstance(name, str) and not name.isalnum()}
    products: dict[int | str | DType, int | str] = {}
    for name in sorted(numbers, key=numbers.__getitem__):
        factors = [other for other in numbers if other != name and other not in products]
        pairs = combinations_with_replacement(factors, 2)
        candidates = [f"{a}*{b}" for a, b in pairs if numbers[a] * numbers[b] == numbers[name]]
        if candidates and f"{name} + 1" not in levels:
            products[name] = candidates[0]
    return {
        name: tuple(products.get(size, size) for size in shape) for name, shape in pattern.items()
    }


def _open(
    name: str, declared: Mapping[str, Shape], given: Mapping[str, Sequence[int]], rows: set[str]
) -> Iterator[tuple[str, int, int]]:
    """The dynamic entries of a feed with their values, without the rows of sequences."""
    for axis, number in enumerate(given[name]):
        if _is_open(declared[name], axis) and not (axis == 0 and name in rows):
            yield name, axis, number


def _is_open(shape: Shape, axis: int) -> bool:
    return isinstance(shape[axis], Dim)


def _letters() -> Iterator[str]:
    """N, M, … T, N1, M1 and so on."""
    pairs = ((letter, number) for number in count() for letter in LETTERS)
    return (letter + (str(number) if number else "") for letter, number in pairs)


def lod_owners_of(feed: Mapping[str, Array]) -> dict[str, str]:
    """Map each feed with LoD to the first one, by name, that has the same LoD."""
    lods: dict[str, list[Array]] = {}
    for name in sorted(name for name in feed if LOD in name):
        lods.setdefault(name.partition(LOD)[0], []).append(feed[name])
    return {name: next(other for other in lods if _same(lods[other], lods[name])) for name in lods}


def _same(a: Sequence[Array], b: Sequence[Array]) -> bool:
    return a is b or (len(a) == len(b) and all(map(np.array_equal, a, b)))
