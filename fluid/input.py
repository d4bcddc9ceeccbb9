"""`fluid.embedding` and `fluid.one_hot`: like the layers, but for ids of any shape."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layers.mathematics.indexing import one_hot_rows
from fluid.layers.recommending.lookup import append_lookup, lookup_attributes
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.arguments import typed
from fluid.recording.atomic import atomic

__all__ = ["embedding", "one_hot"]


@typed
@atomic
def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttrLike = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Look up rows of a new parameter of shape `size` [rows, width].

    `input` is int64 of any shape, the result has an additional last axis of size `width`.
    Everything else is as in `fluid.layers.embedding`.

    >>> import fluid
    >>> tokens = fluid.data("tokens", [None, 7], dtype="int64")
    >>> embedding(tokens, size=[100, 16]).shape
    (-1, 7, 16)
    """
    attrs = lookup_attributes(size, is_sparse, is_distributed, padding_idx)
    return append_lookup("lookup_table_v2", input, size, param_attr, dtype, attrs)


@typed
@atomic
def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """One-hot encode `input`, of any shape, along a new last axis of size `depth`.

    An index outside [0, depth) is an error, or an all-zero row if `allow_out_of_range`.

    >>> import fluid
    >>> digit = fluid.data("digit", [None], dtype="int64")
    >>> one_hot(digit, depth=10).shape
    (-1, 10)
    """
    return one_hot_rows("one_hot_v2", input, depth, allow_out_of_range)
