"""Parsing of fetch lists: variables, names, and results of `minimize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from fluid.framework import Program, Variable
from fluid.recording.operator import Operator

FetchList: TypeAlias = Sequence[object] | Variable | str | None
"""A variable or name, or a list: its items are checked when it is read."""


def names_of(fetch_list: FetchList) -> tuple[str, ...]:
    """The names in a fetch list, or of a single variable or name."""
    items = fetch_list if isinstance(fetch_list, list) else _listed(fetch_list)
    names: list[str] = []
    for item in items:
        if isinstance(item, Variable):
            names.append(item.name)
        else:
            names += _nested_names(item)
    return tuple(names)


def updates_in(fetch_list: FetchList) -> list[Operator]:
    """The parameter updates in a fetch list: ops, lists of them, or results of `minimize`."""
    items = fetch_list if isinstance(fetch_list, list) else _listed(fetch_list)
    updates: list[Operator] = []
    for item in items:
        if isinstance(item, str | Variable):
            continue
        ops = cast(object, item) if isinstance(item, list) else _first(item)
        entries: list[object] = cast("list[object]", ops) if isinstance(ops, list) else [item]
        updates += [entry for entry in entries if isinstance(entry, Operator)]
    return updates


def _listed(fetch_list: FetchList) -> Sequence[object]:
    """The items of a fetch list, which may be a single one, or None for no fetches."""
    if fetch_list is None:
        return ()
    if isinstance(fetch_list, str | Variable):
        return (fetch_list,)
    if not isinstance(fetch_list, list | tuple):
        kind = type(fetch_list).__name__
        raise TypeError(f"fetch_list must be a list of Variables or names, not {kind}")
    return fetch_list


def expect_own(program: Program, fetch_list: FetchList) -> None:
    """Raise ValueError for a variable to fetch that is of another program, and not of this one."""
    for item in _listed(fetch_list):
        if isinstance(item, Variable) and program.blocks[0].lookup(item.name) is None:
            raise ValueError(
                f"fetch {item.name!r} is a variable of another program than the one to run: pass "
                "that to Executor.run, or add the layers within one program_guard"
            )


def _nested_names(item: object) -> list[str]:
    """The names in an item of a fetch list: a variable, a name, or a list of them.

    The result of `minimize`, or its ops, fetches nothing: `updates_in` has them.
    """
    if type(item) is str:
        return [item]
    if isinstance(item, list):
        return [name for entry in cast(list[object], item) for name in _single_name(entry)]
    first = _first(item)
    if isinstance(first, list):
        return _nested_names(cast(list[object], first))
    return _single_name(item)


def _first(item: object) -> object:
    """The first item of a tuple; None for anything else."""
    return next(iter(cast(tuple[object, ...], item)), None) if isinstance(item, tuple) else None


def _single_name(item: object) -> list[str]:
    """The name of a variable, nothing for a parameter update op; raises TypeError otherwise."""
    if isinstance(item, Variable | str):
        return [item if isinstance(item, str) else item.name]
    if not isinstance(item, Operator):
        kind = type(item).__name__
        raise TypeError(f"an item of fetch_list must be a Variable, a name or an op, not {kind}")
    if not item.is_optimize_op():
        raise TypeError(f"the operator {item.type} in fetch_list is not an optimize_op")
    return []
