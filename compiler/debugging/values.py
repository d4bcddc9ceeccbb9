"""Every value that a graph computes, for `compare` and `bisect`.

Values come from the interpreter, the reference implementation. Vars keep their names, so the values
of two stages of one program are matched by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any
from zlib import crc32

import numpy as np

from compiler.errors import CompileError
from compiler.interpret import run
from compiler.ir.conversion.companions import LOD
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.printer import show_op
from compiler.ir.types import Array
from compiler.passes.observers import made_up
from compiler.support.dataclass import dataclass

SEED = 7
"""Seed for random ops that would otherwise draw different numbers in every run."""


@dataclass(frozen=True)
class RunValue:
    """A value with the label and name of its var, its op and the user's line."""

    label: str
    name: str
    op: str
    source: str
    array: Any = field(repr=False)


@dataclass(frozen=True)
class RunValues:
    """Values of a run: every value by label in the order of the ops, and the outputs (results and
    updated state) by name.
    """

    values: Mapping[str, RunValue]
    left: Mapping[str, Any]


def numbers(
    graph: Graph,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    instead: Mapping[str, Any] | None = None,
) -> RunValues:
    """Interpret a graph and return every value; `params` are not modified.

    `instead` maps labels to arrays that replace the computed values. Raises KeyError for a missing
    feed or state, and errors of the ops.
    """
    values: dict[str, RunValue] = {}
    replacements = instead or {}

    def watch(op: Op, results: list[tuple[Var, Array]]) -> list[tuple[Var, Array]]:
        text = show_op(op)
        for var, array in results:
            copy = array if isinstance(array, list) else np.array(array)
            values[var.label] = RunValue(var.label, var.name, text, op.source, copy)
        return [(var, replacements.get(var.label, array)) for var, array in results]

    state = {name: np.array(array) for name, array in params.items()}
    results = run(graph, feed, state, watch)
    left = dict(zip(graph.fetches, results, strict=True))
    return RunValues(values, left | {name: state[name] for name in written(graph)})


def written(graph: Graph) -> list[str]:
    """Return the names of the state that a run updates."""
    makers = (var for var in graph.params() if graph.producer(var) is not None)
    return list(dict.fromkeys(var.name for var in makers))


def repeatable(graph: Graph) -> None:
    """Set a fixed seed on every random op, in place.

    Raises CompileError for one without a seed attribute: its results are not reproducible.
    """
    for op in [op for op in graph.ops() if op.defn.is_random]:
        attributes = op.defn.attributes
        fixed = {name: value for name, value in _FIXED.items() if name in attributes}
        if "seed" not in attributes:
            raise CompileError(
                "this op draws different numbers in each run and has no seed",
                op=show_op(op), source=op.source, hint="fetch a variable before it: --fetch NAME",
            )  # fmt: skip
        if attributes.get("fix_seed") is False or attributes["seed"] in (0, -1):
            graph.replace(op, op.kind, op.inputs, op.outputs, op.attrs | fixed)


_FIXED = {"fix_seed": True, "seed": SEED}


def inputs(
    vars: Iterable[Var], given: Mapping[str, Array], sizes: Mapping[str, int], typical: int = 3,
    limits: Mapping[str, int] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Return an array for each var: the given one, or random numbers determined by its name.

    Floats are in [0.1, 1], integers 0 or below the number in `limits`, sequences of about equal
    length. Symbolic sizes that no given array determines are those of `sizes`, or `typical`.
    """
    wanted = list(vars)
    size_values = {**settled(wanted, given), **sizes}
    arrays: dict[str, Array] = {}
    for var in wanted:
        settled_type = [size_values.get(name, typical) for name in var.type.names]
        shape = var.type.at(dict(zip(var.type.names, settled_type, strict=True)))
        seed = crc32(var.name.encode())
        arrays[var.name] = made_up(var.type.with_shape(shape), seed)
        if limits and var.name in limits:
            ids = np.random.default_rng(seed).integers(0, limits[var.name], shape)
            arrays[var.name] = ids.astype(var.type.dtype.numpy)
    for name in [name for name in arrays if LOD in name]:
        arrays[name] = _offsets(name, arrays)
    return arrays | {var.name: given[var.name] for var in wanted if var.name in given}


def settled(vars: Iterable[Var], given: Mapping[str, Array]) -> dict[str, int]:
    """Return the values of symbolic sizes that the given arrays determine.

    Raises CompileError if dtype, rank or sizes of an array do not match its var.
    """
    sizes: dict[str, int] = {}
    for var in (var for var in vars if var.name in given):
        array = given[var.name]
        if array.dtype != var.type.dtype.numpy or array.ndim != var.type.rank:
            raise _misfit(var, array)
        for size, actual in zip(var.type.shape, array.shape, strict=True):
            name = str(size)
            if not isinstance(size, int) and name in var.type.names:
                sizes.setdefault(name, actual)
            elif isinstance(size, int) and size != actual:
                raise _misfit(var, array)
    return sizes


def _misfit(var: Var, array: Array) -> CompileError:
    shape = f"{array.dtype} {list(array.shape)}"
    return CompileError(f"{var.name!r} is {var.type}, got {shape}")


def _offsets(name: str, made: Mapping[str, Array]) -> Array:
    """Return LoD offsets that split the level below, or the rows, into about equal parts."""
    base, _, level = name.partition(LOD)
    below = made.get(f"{base}{LOD}{int(level) + 1}")
    whole = below.size - 1 if below is not None else made[base].shape[0] if base in made else 0
    return np.linspace(0, whole, made[name].size).astype(made[name].dtype)
