"""The arrays of a module's params: looked up and checked against their declarations, or created."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TypeAlias

import numpy as np

from compiler.ir.dims import evaluate
from compiler.ir.types import Array
from compiler.plan import Tensor
from runtime.errors import CollectiveError, NotInitialized, StateMismatch
from runtime.memory.arena import new_array

Params: TypeAlias = MutableMapping[str, Array]


def state_arrays(
    tensors: Sequence[Tensor], params: Params, sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Return the array of every param, created if a step will write it first; all or none are
    created.
    """
    shapes = [tuple(evaluate(size, sizes) for size in tensor.shape) for tensor in tensors]
    for tensor, shape in zip(tensors, shapes, strict=True):
        if tensor.given:
            _expect_state(tensor, shape, params)
    pairs = zip(tensors, shapes, strict=True)
    return {tensor.name: _array(tensor, shape, params) for tensor, shape in pairs}


def _expect_state(tensor: Tensor, shape: tuple[int, ...], params: Params) -> None:
    array = params.get(tensor.name)
    if array is None:
        raise NotInitialized(
            f"{tensor.name!r} is not initialised: {tensor.dtype} of shape {shape} is needed",
            hint="run the startup program first, in the same scope, or load saved parameters",
        )
    if array.shape != shape or array.dtype != tensor.dtype:
        raise StateMismatch(
            f"{tensor.name!r} must be {tensor.dtype} of shape {shape}, "
            f"but it holds {array.dtype} of shape {array.shape}",
            hint="was it set by hand, or loaded for another model?",
        )


def _array(tensor: Tensor, shape: tuple[int, ...], params: Params) -> Array:
    """Return the array itself, not a copy: steps write into it, and keep views that need row-major
    order.
    """
    array = _held(tensor, params)
    if array is None or array.shape != shape or array.dtype != tensor.dtype:
        array = params[tensor.name] = new_array(repr(tensor.name), shape, tensor.dtype)
    if not array.flags.c_contiguous:
        array = params[tensor.name] = np.array(array, order="C")
    return array


def _held(tensor: Tensor, params: Params) -> Array | None:
    """Return the array of a param; None if it was lost with its process but is written first
    anyway.
    """
    try:
        return params.get(tensor.name)
    except CollectiveError:
        if tensor.given:
            raise
        return None
