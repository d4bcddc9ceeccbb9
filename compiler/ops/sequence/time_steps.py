"""Shared code of recurrent ops: a row order in which each time step is one contiguous block.

Sequences are sorted by descending length, and step t has the t-th rows of those that are longer
than t: one matrix product per step serves them all, and the sequences of a step are a prefix of
those of the previous step. States are stacked above the initial ones, so that the state before the
first step is found like any other. The functions are copied into generated modules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.types import Array, TensorType
from compiler.ops.sequence.offsets import run_rows
from compiler.ops.type_checks import differ

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")
"""The activations of the reference's recurrent kernels."""


def require_activations(op: str, **names: str) -> None:
    """Raise BadAttribute for an activation that recurrent ops do not support."""
    for attribute, name in names.items():
        if name not in ACTIVATIONS:
            expected = ", ".join(ACTIVATIONS)
            raise BadAttribute(f"{op}: {attribute!r} is {name!r}, expected one of {expected}")


def require_shape(op: str, slot: str, type: TensorType, *shape: Size) -> None:
    """Raise ShapeError unless an input may have a shape."""
    pairs = zip(type.shape, shape, strict=False)
    if type.rank != len(shape) or any(differ(a, b) for a, b in pairs):
        raise ShapeError(f"{op}: {slot} is {type}, expected [{', '.join(map(str, shape))}]")


def by_time_step(offsets: Array, backwards: bool) -> tuple[Array, Array, Array]:
    """The order of sequences, the offsets of the steps, and the row at each position.

    Empty sequences are not in the order. `backwards` starts with each sequence's last row.

    >>> order, starts, rows = by_time_step(np.array([0, 2, 2, 5]), False)
    >>> print(order, starts, rows)
    [2 0] [0 2 4 5] [2 0 3 1 4]
    """
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    longest = int(lengths.max(initial=0))
    live = len(order) - np.searchsorted(lengths[order][::-1], np.arange(longest), side="right")
    steps = np.repeat(np.arange(longest), live)
    owners = order[run_rows(np.zeros_like(live), live)]
    rows = offsets[owners + 1] - 1 - steps if backwards else offsets[owners] + steps
    return order, np.append(0, np.cumsum(live)), rows


def blocks_of(starts: Array) -> list[tuple[slice, slice, slice]]:
    """The slices of each step: in time-step order, in a state stack, of the previous states.

    >>> blocks_of(np.array([0, 2, 3]))[1]
    (slice(2, 3, None), slice(4, 5, None), slice(2, 3, None))
    """
    places: list[int] = starts.tolist()
    first = sum(places[1:2])
    return [
        (slice(begin, end), slice(first + begin, first + end), slice(before, before + end - begin))
        for begin, end, before in zip(
            places[:-1], places[1:], [0, *(first + place for place in places)], strict=False
        )
    ]


def steps_of(offsets: Array, backwards: bool) -> tuple[Array, Array, Array, list[Any], list[Any]]:
    """The steps as integers, for code that launches kernels for each.

    The order of sequences, the row at each position, the index of the previous state in the stack;
    then the steps, first to last and last to first, each with: its begin in time-step order and
    in the stack, the begin of the previous states, its number of rows, the begin of the next step
    and its number of rows.

    >>> steps_of(np.array([0, 2, 3]), False)[3]
    [(0, 2, 0, 2, 2, 1), (2, 4, 2, 1, 0, 0)]
    """
    order, starts, rows = by_time_step(offsets, backwards)
    blocks = blocks_of(starts)
    nexts = [(now.start, now.stop - now.start) for now, _, _ in blocks[1:]]
    steps = [
        (now.start, new.start, before.start, now.stop - now.start, *after)
        for (now, new, before), after in zip(blocks, [*nexts, (0, 0)], strict=False)
    ]
    return order, rows, places_before(starts), steps, steps[::-1]


def places_before(starts: Array) -> Array:
    """For each position in time-step order, the index of the previous state in the stack.

    >>> print(places_before(np.array([0, 2, 3])))
    [0 1 2]
    """
    counts = np.diff(starts)
    befores = np.append(0, counts[:1].sum() + starts[:-2])
    return run_rows(befores[: len(counts)], counts)


def stack_states(
    initial: Array | None, order: Array, rows: int, size: int, dtype: np.dtype[Any]
) -> Array:
    """A stack of states with only the initial ones set: to zero if none are passed."""
    states = np.empty((len(order) + rows, size), dtype)
    states[: len(order)] = 0.0 if initial is None else initial[order]
    return states


def stacked(initial: Array | None, order: Array, states: Array) -> Array:
    """States in time-step order, stacked above the initial ones, or above zeros."""
    stack = stack_states(initial, order, len(states), states.shape[1], states.dtype)
    stack[len(order) :] = states
    return stack


def initial_gradient(d_states: Array, order: Array, count: int) -> Array:
    """The gradient of the initial states of `count` sequences: zero for empty ones."""
    gradient = np.zeros((count, d_states.shape[1]), d_states.dtype)
    gradient[order] = d_states[: len(order)]
    return gradient


def in_rows(places: Array, rows: Array) -> Array:
    """Permute rows from time-step order back to the rows of the sequences."""
    permutation = np.empty_like(places)
    permutation[rows] = places
    return permutation


def activate(values: Array, kind: str) -> None:
    """Apply an activation in place; "sigmoid" clamps its argument to [-40, 13].

    "logistic" is the same without the clamp.
    """
    if kind in ("sigmoid", "logistic"):
        np.multiply(values, -1.0, out=values)  # `np.negative` of a strided column is wrong
        if kind == "sigmoid":
            np.clip(values, -13.0, 40.0, out=values)
        np.exp(values, out=values)
        np.add(values, 1.0, out=values)
        np.reciprocal(values, out=values)
    elif kind == "tanh":
        np.tanh(values, out=values)
    elif kind == "relu":
        np.maximum(values, 0.0, out=values)


def within(values: Array, clip: float) -> Array | float:
    """1 where a clip leaves values unchanged, 0 where it is active; a clip of 0 means none."""
    return np.abs(values) < clip if clip > 0.0 else 1.0


def slope(active: Array, kind: str) -> Array:
    """The derivative of an activation, from its output."""
    if kind in ("sigmoid", "logistic"):
        return active * (1.0 - active)
    if kind == "tanh":
        return 1.0 - active * active
    return (active > 0.0).astype(active.dtype) if kind == "relu" else np.ones_like(active)


def parts(gates: Array, count: int) -> list[Array]:
    """Split the gates into columns of equal width, views of one array."""
    width = gates.shape[1] // count
    return [gates[:, part * width : (part + 1) * width] for part in range(count)]
