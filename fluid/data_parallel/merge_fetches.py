"""Concatenation of the values fetched on each device along axis 0, in device order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.types import Array
from fluid.running.fetched_values import Value
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["merged", "unmerged"]


def merged(fetch: Sequence[str], results: Sequence[Sequence[Value]]) -> list[Value]:
    """One value per fetch, from a list of values per device.

    Arrays are concatenated along axis 0, so a loss of shape [1] has shape [devices]; LoD tensors
    with their sequences; tensor arrays element by element. Raises ShapeError if the other axes
    differ between devices, as with padded batches of different sequence lengths.
    """
    columns = zip(fetch, zip(*results, strict=True), strict=True)
    return [_join(name, values) for name, values in columns]


def unmerged(results: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """The values of all devices per fetch, from a list of values per device."""
    return [list(values) for values in zip(*results, strict=True)]


def _join(name: str, values: Sequence[Value]) -> Value:
    if isinstance(values[0], LoDTensor):
        return _join_sequences(name, [value for value in values if isinstance(value, LoDTensor)])
    if isinstance(values[0], list):
        lists = [value for value in values if isinstance(value, list)]
        return [_join_arrays(name, arrays) for arrays in zip(*lists, strict=True)]
    return _join_arrays(name, [np.asarray(value) for value in values])


def _join_arrays(name: str, arrays: Sequence[Array]) -> Array:
    try:
        return np.concatenate(arrays) if arrays[0].ndim else np.stack(arrays)
    except ValueError:
        raise _unequal(name, arrays) from None


def _join_sequences(name: str, values: Sequence[LoDTensor]) -> LoDTensor:
    """Concatenate the sequences of all devices into one batch, with shifted offsets."""
    try:
        array = np.concatenate([_elements(value) for value in values])
    except ValueError:
        raise _unequal(name, [_elements(value) for value in values]) from None
    lods = [value.lod() for value in values]
    return LoDTensor.cut(array, [_offsets(level) for level in zip(*lods, strict=True)])


def _offsets(levels: Sequence[Sequence[int]]) -> Array:
    """The offsets of one level of all devices."""
    lengths = np.concatenate([np.diff(level) for level in levels])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _elements(value: LoDTensor) -> Array:
    return np.empty(0) if value.array is None else value.array


def _unequal(name: str, values: Sequence[Array]) -> ShapeError:
    shapes = ", ".join(str(value.shape) for value in values)
    return ShapeError(
        f"fetch {name!r} has the shapes {shapes} on the devices: axis 0 cannot join them",
        hint="fetch with return_merged=False, or feed batches of the same padded length",
    )
