"""Masks that a program adds to scores so that no query has a weight for later keys."""

from __future__ import annotations

from typing import cast

import numpy as np

from compiler.interpret import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array
from compiler.passes.base import Context
from compiler.passes.simplify.value_replacement import is_wanted

FAR = -9000.0
"""What is at most added to scores of later keys: exp(score + FAR - maximum) is 0."""

_MAKERS = frozenset(
    "assign assign_value cast elementwise_mul expand fill_constant reshape reshape2 scale "
    "squeeze squeeze2 stack transpose transpose2 tril_triu unsqueeze unsqueeze2".split()
)
"""Ops that scripts make such masks of."""


def is_causal_mask(g: Graph, mask: Var, ctx: Context) -> bool:
    """Whether a mask is a constant [1…, tokens, tokens]: 0, and at most FAR above the diagonal."""
    shape = mask.type.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or not isinstance(shape[-1], int):
        return False
    if mask.type.numel != shape[-1] ** 2:
        return False
    array = _constant(g, mask, ctx)
    if array is None:
        return False
    matrix = np.asarray(array, np.float32).reshape(shape[-1], shape[-1])
    later = np.triu(np.ones(matrix.shape, bool), 1)
    return bool((matrix[later] <= FAR).all() and not matrix[~later].any())


def remove_unused_mask(g: Graph, mask: Var) -> None:
    """Remove the ops that compute a mask, as far as nothing else reads their results."""
    op = g.producer(mask)
    if op is None or op.kind not in _MAKERS or any(is_wanted(g, var) for var in op.writes()):
        return
    inputs = op.reads()
    g.remove(op)
    for var in inputs:
        remove_unused_mask(g, var)


def _constant(g: Graph, var: Var, ctx: Context) -> Array | None:
    """Return the value of a var that is computed from constants; None for others."""
    maker = g.producer(var)
    if g.overwriter(var) is not None or (maker is not None and maker.kind not in _MAKERS):
        return None
    if maker is None:
        return None if ctx.params is None else ctx.params.get(var.name)
    return _computed(g, maker, var, ctx)


def _computed(g: Graph, op: Op, var: Var, ctx: Context) -> Array | None:
    """Return what an op computes for a var from constants."""
    arrays = {
        slot: [_constant(g, value, ctx) for value in values] for slot, values in op.inputs.items()
    }
    if any(array is None for values in arrays.values() for array in values):
        return None
    return dict(evaluate(op, cast("dict[str, list[Array]]", arrays)))[var]
