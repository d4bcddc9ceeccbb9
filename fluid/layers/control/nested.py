"""Nested structures (lists, tuples, dicts) of variables for control flow layers.

Dicts are traversed by sorted keys. Anything else is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard, overload

from fluid.framework import Variable

__all__ = [
    "assert_same_structure",
    "convert_to_list",
    "copy_mutable_vars",
    "flatten",
    "hold_mutable_vars",
    "is_dict",
    "is_sequence",
    "map_structure",
    "pack_sequence_as",
]


Structure: TypeAlias = Any
"""A variable, or a list, tuple, named tuple or dict of structures.

Functions of users take and return it, in a form that is theirs, so its parts have no static type.
"""


def is_sequence(value: object) -> bool:
    """Return whether a value is a structure: a dict or a sequence that is not a string."""
    return isinstance(value, dict) or (isinstance(value, Sequence) and not isinstance(value, str))


def is_dict(structure: Structure) -> TypeGuard[dict[str, Structure]]:
    """Return whether a structure is a dict."""
    return isinstance(structure, dict)


def _items(structure: Structure) -> list[Structure]:
    if is_dict(structure):
        return [structure[key] for key in sorted(structure)]
    return list(structure)


def flatten(structure: Structure) -> list[Structure]:
    """Return the leaves of a structure in order.

    >>> flatten([1, (2, {"b": 4, "a": 3})])
    [1, 2, 3, 4]
    """
    if not is_sequence(structure):
        return [structure]
    return [entry for item in _items(structure) for entry in flatten(item)]


def pack_sequence_as(structure: Structure, flat_sequence: Sequence[Structure]) -> Structure:
    """Replace the leaves of a structure; ValueError if their number differs.

    >>> pack_sequence_as([1, (2, 3)], "abc")
    ['a', ('b', 'c')]
    """
    count = len(flatten(structure))
    if count != len(flat_sequence):
        raise ValueError(
            f"a structure of {count} entries cannot be built from {len(flat_sequence)}: {structure}"
        )
    return _pack(structure, iter(flat_sequence))


def _pack(structure: Structure, leaves: Iterator[Structure]) -> Structure:
    if not is_sequence(structure):
        return next(leaves)
    if is_dict(structure):
        packed = {key: _pack(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, packed[key]) for key in structure)
    parts = [_pack(item, leaves) for item in structure]
    return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)


@overload
def map_structure(function: Callable[[Structure], object], first: Structure, /) -> Structure: ...
@overload
def map_structure(
    function: Callable[[Structure, Structure], object], first: Structure, second: Structure, /
) -> Structure: ...
def map_structure(function: Callable[..., object], *structures: Structure) -> Structure:
    """Apply a function to corresponding leaves; the result has the first structure.

    >>> map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    flat = zip(*map(flatten, structures), strict=False)
    return pack_sequence_as(structures[0], [function(*leaves) for leaves in flat])


def assert_same_structure(first: Structure, second: Structure, check_types: bool = True) -> None:
    """Raise ValueError if structures differ, TypeError if `check_types` and their types do."""
    if len(flatten(first)) != len(flatten(second)) or is_sequence(first) != is_sequence(second):
        raise ValueError(
            f"the structures {_structure_text(first)} and {_structure_text(second)} differ in "
            "their entries"
        )
    if not is_sequence(first):
        return
    if check_types and type(first) is not type(second):
        kinds = f"{type(first).__name__} and {type(second).__name__}"
        raise TypeError(f"the structures are of different types, {kinds}")
    if is_dict(first) and check_types and set(first) != set(second):
        raise ValueError(f"the keys {sorted(first)} and {sorted(second)} differ")
    for left, right in zip(_items(first), _items(second), strict=False):
        assert_same_structure(left, right, check_types)


def _structure_text(structure: Structure) -> str:
    """A structure with the names of its variables."""
    if is_dict(structure):
        pairs = (f"{key!r}: {_structure_text(item)}" for key, item in structure.items())
        return f"{{{', '.join(pairs)}}}"
    if is_sequence(structure):
        items = ", ".join(map(_structure_text, structure))
        return f"[{items}]" if isinstance(structure, list) else f"({items})"
    return f"{structure.name!r}" if isinstance(structure, Variable) else repr(structure)


def hold_mutable_vars(structure: Structure) -> bool:
    """Return whether any item of a structure is itself a structure."""
    return any(map(is_sequence, structure))


def copy_mutable_vars(structure: Structure) -> Structure:
    """Copy a structure, keeping its leaves."""
    return pack_sequence_as(structure, flatten(structure))


def convert_to_list(value: int | Iterable[int], n: int, name: str) -> list[int]:
    """Return `n` numbers: `value` repeated, or its items.

    Raises ValueError, naming the argument, for another number of items or another type.

    >>> convert_to_list(3, 2, "stride"), convert_to_list((1, 2), 2, "stride")
    ([3, 3], [1, 2])
    """
    if isinstance(value, int):
        return [value] * n
    try:
        count = len([int(item) for item in value])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The {name} must be int or a list of {n} of them, but received {value!r}"
        ) from error
    if count != n:
        raise ValueError(f"The {name}'s length must be {n}, but received {value!r}")
    return list(value)
