"""Nested structures (lists, tuples, dicts) of variables for control flow layers.

Dicts are traversed by sorted keys. Anything else is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = [
    "assert_same_structure",
    "convert_to_list",
    "copy_mutable_vars",
    "flatten",
    "hold_mutable_vars",
    "is_sequence",
    "map_structure",
    "pack_sequence_as",
]


def is_sequence(value: Any) -> bool:
    """Return whether a value is a structure: a dict or a sequence that is not a string."""
    return isinstance(value, dict) or (isinstance(value, Sequence) and not isinstance(value, str))


def _items(structure: Any) -> list[Any]:
    if isinstance(structure, dict):
        return [structure[key] for key in sorted(structure)]
    return list(structure)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of a structure in order.

    >>> flatten([1, (2, {"b": 4, "a": 3})])
    [1, 2, 3, 4]
    """
    if not is_sequence(structure):
        return [structure]
    return [entry for item in _items(structure) for entry in flatten(item)]


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
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


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_sequence(structure):
        return next(leaves)
    if isinstance(structure, dict):
        packed = {key: _pack(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, packed[key]) for key in structure)
    parts = [_pack(item, leaves) for item in structure]
    return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)


def map_structure(function: Callable[..., Any], *structures: Any) -> Any:
    """Apply a function to corresponding leaves; the result has the first structure.

    >>> map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    flat = zip(*map(flatten, structures), strict=False)
    return pack_sequence_as(structures[0], [function(*leaves) for leaves in flat])


def assert_same_structure(first: Any, second: Any, check_types: bool = True) -> None:
    """Raise ValueError if structures differ, TypeError if `check_types` and their types do."""
    if len(flatten(first)) != len(flatten(second)) or is_sequence(first) != is_sequence(second):
        raise ValueError(f"the structures {first} and {second} differ in their entries")
    if not is_sequence(first):
        return
    if check_types and type(first) is not type(second):
        kinds = f"{type(first).__name__} and {type(second).__name__}"
        raise TypeError(f"the structures are of different types, {kinds}")
    if isinstance(first, dict) and check_types and set(first) != set(second):
        raise ValueError(f"the keys {sorted(first)} and {sorted(second)} differ")
    for left, right in zip(_items(first), _items(second), strict=False):
        assert_same_structure(left, right, check_types)


def hold_mutable_vars(structure: Any) -> bool:
    """Return whether any item of a structure is itself a structure."""
    return any(map(is_sequence, structure))


def copy_mutable_vars(structure: Any) -> Any:
    """Copy a structure, keeping its leaves."""
    return pack_sequence_as(structure, flatten(structure))


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """Return `n` values of a type: `value` repeated, or its items.

    Raises ValueError, naming the argument, for another number of items or another type.

    >>> convert_to_list(3, 2, "stride"), convert_to_list((1, 2), 2, "stride")
    ([3, 3], [1, 2])
    """
    if isinstance(value, dtype):
        return [value] * n
    try:
        items = [dtype(item) for item in value]
    except (TypeError, ValueError) as error:
        expected = f"{dtype.__name__} or a list of {n} of them"
        raise ValueError(f"The {name} must be {expected}, but received {value!r}") from error
    if len(items) != n:
        raise ValueError(f"The {name}'s length must be {n}, but received {value!r}")
    return list(value)
