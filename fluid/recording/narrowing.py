"""Checks of values of any type that tell the type checker what the elements are: of any type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

__all__ = ["is_collection", "is_list", "is_mapping", "is_sequence"]


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_collection(value: object) -> TypeGuard[Collection[object]]:
    """Whether a value is a list, a tuple, a set or a frozenset."""
    return isinstance(value, list | tuple | set | frozenset)


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether a value is a mapping."""
    return isinstance(value, Mapping)
