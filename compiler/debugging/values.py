"""What a graph computes, value by value: what `compare` and `bisect` hold against each other.

Values come from the interpreter, which is the meaning of a graph. Vars keep their names for life,
so the values of two stages of one program meet by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from compiler.errors import CompileError
from compiler.interpret import run
from compiler.ir.conversion.block_walk import LOD
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.printer import show_op
from compiler.ir.types import Array
from compiler.passes.observers import made_up

SEED = 7
"""Where the chance of ops begins that would draw other numbers every time."""


@dataclass(frozen=True)
class Value:
    """A value by the label and name of its var, with the op that made it and the user's line."""

    label: str
    name: str
    op: str
    source: str
    array: Any = field(repr=False)


@dataclass(frozen=True)
class Numbers:
    """What a run computed: every value in the order of the ops, and what is left of it, which are
    results and the state that was written, by label and by name.
    """

    values: Mapping[str, Value]
    left: Mapping[str, Any]


def numbers(
    graph: Graph,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    instead: Mapping[str, Any] | None = None,
) -> Numbers:
    """Run a graph in the interpreter and keep every value; `params` stay as they are.

    `instead` gives values by label that are taken for those an op computed. Raises KeyError for a
    feed or state that is missing, and what ops raise.
    """
    values: dict[str, Value] = {}
    given = instead or {}

    def watch(op: Op, results: list[tuple[Var, Array]]) -> list[tuple[Var, Array]]:
        text = show_op(op)
        for var, array in results:
            kept = array if isinstance(array, list) else np.array(array)
            values[var.label] = Value(var.label, var.name, text, op.source, kept)
        return [(var, given.get(var.label, array)) for var, array in results]

    state = {name: np.array(array) for name, array in params.items()}
    results = run(graph, feed, state, watch)
    left = dict(zip(graph.fetches, results, strict=True))
    return Numbers(values, left | {name: state[name] for name in written(graph)})


def written(graph: Graph) -> list[str]:
    """The names of the state that a run changes."""
    makers = (var for var in graph.params() if graph.producer(var) is not None)
    return list(dict.fromkeys(var.name for var in makers))


def repeatable(graph: Graph) -> None:
    """Give every op that draws numbers a seed, in place.

    Raises CompileError for one that takes none: no two runs of it are the same.
    """
    for op in [op for op in graph.ops() if op.defn.is_random]:
        known = op.defn.attributes
        fixed = {name: value for name, value in _FIXED.items() if name in known}
        if "seed" not in known:
            raise CompileError(
                "two runs of this op draw other numbers, and it takes no seed",
                op=show_op(op), source=op.source, hint="cut the program before it: --fetch NAME",
            )  # fmt: skip
        if known.get("fix_seed") is False or known["seed"] in (0, -1):
            graph.replace(op, op.kind, op.inputs, op.outputs, op.attrs | fixed)


_FIXED = {"fix_seed": True, "seed": SEED}


def inputs(
    vars: Iterable[Var], given: Mapping[str, Array], sizes: Mapping[str, int], typical: int = 3
) -> dict[str, Array]:
    """An array for each var: the one that is given, or made-up numbers that its name decides.

    Floats are from 0.1 to 1, whole numbers 0, sequences about equally long. Open sizes that no
    given array settles are those of `sizes`, or `typical`.
    """
    wanted = list(vars)
    known = {**settled(wanted, given), **sizes}
    made: dict[str, Array] = {}
    for var in wanted:
        settled_type = [known.get(name, typical) for name in var.type.names]
        shape = var.type.at(dict(zip(var.type.names, settled_type, strict=True)))
        made[var.name] = made_up(var.type.with_shape(shape), crc32(var.name.encode()))
    for name in [name for name in made if LOD in name]:
        made[name] = _offsets(name, made)
    return made | {var.name: given[var.name] for var in wanted if var.name in given}


def settled(vars: Iterable[Var], given: Mapping[str, Array]) -> dict[str, int]:
    """What given arrays say of open sizes.

    Raises CompileError where an array is not of the element type, rank or sizes of its var.
    """
    found: dict[str, int] = {}
    for var in (var for var in vars if var.name in given):
        array = given[var.name]
        if array.dtype != var.type.dtype.numpy or array.ndim != var.type.rank:
            raise _misfit(var, array)
        for size, there in zip(var.type.shape, array.shape, strict=True):
            name = str(size)
            if not isinstance(size, int) and name in var.type.names:
                found.setdefault(name, there)
            elif isinstance(size, int) and size != there:
                raise _misfit(var, array)
    return found


def _misfit(var: Var, array: Array) -> CompileError:
    shape = f"{array.dtype} {list(array.shape)}"
    return CompileError(f"{var.name!r} is {var.type}, but is given {shape}")


def _offsets(name: str, made: Mapping[str, Array]) -> Array:
    """Offsets that cut the level below them, or the rows, into parts of about one length."""
    base, _, level = name.partition(LOD)
    below = made.get(f"{base}{LOD}{int(level) + 1}")
    whole = below.size - 1 if below is not None else made[base].shape[0] if base in made else 0
    return np.linspace(0, whole, made[name].size).astype(made[name].dtype)
