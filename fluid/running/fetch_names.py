"""Parsing of fetch lists: variables, names, and results of `minimize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.framework import Variable
from fluid.recording.operator import Operator


def names_of(fetch_list: Any) -> tuple[str, ...]:
    """The names in a fetch list, or of a single variable or name."""
    if type(fetch_list) is not list:
        fetch_list = _listed(fetch_list)
    names: list[str] = []
    for item in fetch_list:
        if isinstance(item, Variable):
            names.append(item.name)
        else:
            names += _nested_names(item)
    return tuple(names)


def _listed(fetch_list: Any) -> Sequence[Any]:
    """The items of a fetch list, which may be a single one, or None for no fetches."""
    if fetch_list is None:
        return ()
    if isinstance(fetch_list, str | Variable):
        return (fetch_list,)
    if not isinstance(fetch_list, list | tuple):
        kind = type(fetch_list).__name__
        raise TypeError(f"fetch_list must be a list of Variables or names, not {kind}")
    return fetch_list


def _nested_names(item: Any) -> list[str]:
    """The names in an item of a fetch list: a variable, a name, or a list of them.

    The result of `minimize`, or its ops, fetches nothing: updates run in any case.
    """
    if type(item) is str:
        return [item]
    if isinstance(item, list):
        return [name for entry in item for name in _single_name(entry)]
    if isinstance(item, tuple) and item and isinstance(item[0], list):
        return _nested_names(item[0])
    return _single_name(item)


def _single_name(item: Any) -> list[str]:
    """The name of a variable, nothing for a parameter update op; raises TypeError otherwise."""
    if isinstance(item, Variable | str):
        return [item if isinstance(item, str) else item.name]
    if not isinstance(item, Operator):
        kind = type(item).__name__
        raise TypeError(f"an item of fetch_list must be a Variable, a name or an op, not {kind}")
    if not item.is_optimize_op():
        raise TypeError(f"the operator {item.type} in fetch_list is not an optimize_op")
    return []
