"""Checks of feeds against declared shapes and dtypes, as scripts import them from
`fluid.executor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from compiler.ir import program as ir
from compiler.ir.program import OpDesc
from compiler.ir.types import DType
from fluid.compat.descs import VarDesc
from fluid.framework import Block, Operator, Program, Variable
from fluid.recording.annotations import DTypeLike
from fluid.recording.variable import convert_np_dtype_to_dtype_
from runtime.device import Place
from runtime.errors import wrong_fed_dtype, wrong_fed_shape
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "check_feed_shape_type", "diff_tensor_shape", "dimension_is_compatible_with",
    "declared_feed",
    "dtype_is_compatible_with", "has_feed_operators", "has_fetch_operators", "lod_tensor_of",
    "missing_feeds",
    "name_text",
]  # fmt: skip

Sizes = Sequence[int | None]


def dtype_is_compatible_with(first: DTypeLike, second: DTypeLike) -> bool:
    """Whether two dtypes are the same, in any notation.

    >>> dtype_is_compatible_with("float32", np.float32), dtype_is_compatible_with("int64", "int32")
    (True, False)
    """
    return convert_np_dtype_to_dtype_(first) == convert_np_dtype_to_dtype_(second)


def dimension_is_compatible_with(first: Sizes, second: Sizes) -> bool:
    """Whether two shapes are compatible; None and negative sizes match any size.

    >>> dimension_is_compatible_with([-1, 3], [2, None]), dimension_is_compatible_with([2], [2, 1])
    (True, False)
    """
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(a == b for a, b in pairs if _is_known(a) and _is_known(b))


def _is_known(size: int | None) -> bool:
    return size is not None and size >= 0


def diff_tensor_shape(tensor: LoDTensor, var_desc: VarDesc, num_places: int) -> list[int] | None:
    """The shape of a tensor if it differs from the declared one, else None.

    `var_desc` is a `var.desc`. The first axis is divided by the number of devices `num_places`;
    that of sequences is not compared.
    """
    shape = list(tensor.shape())
    if tensor.lod():
        shape[0] = -1
    elif shape and num_places > 1:
        shape[0] = -(-shape[0] // num_places)
    return None if dimension_is_compatible_with(var_desc.shape(), shape) else shape


def check_feed_shape_type(var: Variable, feed: LoDTensor, num_places: int = 1) -> bool:
    """Return True; raises FeedError if a variable that checks feeds has another shape or dtype."""
    if not var.need_check_feed:
        return True
    shape = diff_tensor_shape(feed, var.desc, num_places)
    if shape is not None:
        raise wrong_fed_shape(var.name, var.shape, shape)
    if feed.element is not var.element:
        raise wrong_fed_dtype(var.name, str(var.element.numpy), str(feed.element.numpy))
    return True


def has_feed_operators(
    block: Block, feed_targets: Mapping[str, object], feed_holder_name: str
) -> bool:
    """Whether a block starts with feed ops; raises ValueError if they are for other variables."""
    ops = [op for op in block.ops if op.type == "feed"]
    actual = {op.output("Out")[0] for op in ops}
    _expect_holder([op.input("X")[0] for op in ops], feed_holder_name)
    if ops and actual != set(feed_targets):
        raise ValueError(
            f"feed ops are for {sorted(actual)}, but feed_targets are {sorted(feed_targets)}"
        )
    return bool(ops)


def has_fetch_operators(
    block: Block, fetch_targets: Sequence[Variable], fetch_holder_name: str
) -> bool:
    """Whether a block has fetch ops; raises ValueError if they are for other variables."""
    ops = sorted((op for op in block.ops if op.type == "fetch"), key=lambda op: op.attr("col"))
    actual = [op.input("X")[0] for op in ops]
    names = [var.name for var in fetch_targets]
    _expect_holder([op.output("Out")[0] for op in ops], fetch_holder_name)
    if ops and actual != names:
        raise ValueError(f"fetch ops are for {actual}, but fetch_targets are {names}")
    return bool(ops)


def _expect_holder(holders: Sequence[str], name: str) -> None:
    assert set(holders) <= {name}, f"the holder is {holders[0]!r}, but {name!r} is expected"


def lod_tensor_of(data: object, place: Place, dtype: DTypeLike | None = None) -> LoDTensor:
    """Convert an array, or a number with a dtype, to a LoDTensor.

    Raises RuntimeError for a list, which has no LoD, and AssertionError for a number without
    `dtype`.
    """
    if isinstance(data, list):
        raise RuntimeError("a list may contain sequences: pass an array or a LoDTensor")
    if np.isscalar(data):
        assert dtype is not None, "dtype should be given when casting python scalar to tensor"
        data = np.array([data]).astype(DType.of(convert_np_dtype_to_dtype_(dtype)).numpy)
    tensor = LoDTensor()
    tensor.set(data, place)
    return tensor


def name_text(var: object) -> str:
    """The name of a fetch: of a variable, comma-separated of several, or the name itself.

    Raises TypeError for anything else.
    """
    if isinstance(var, tuple):
        var = cast(tuple[object, ...], var)[0]
    if isinstance(var, list):
        return ",".join(map(name_text, cast(list[object], var)))
    if isinstance(var, str):
        return var
    if isinstance(var, Operator):
        return str(id(var))
    if isinstance(var, Variable):
        return var.name
    raise TypeError(f"{var!r:.60} should be Variable, Operator or str")


def declared_feed(program: Program, name: str) -> tuple[str, str, tuple[int, ...]]:
    """Name, dtype and shape of a variable, for an error about its feed."""
    var = program.blocks[0].vars[name]
    return name, str(var.element.numpy), var.dims or ()


def missing_feeds(program: Program, known: set[str]) -> dict[str, OpDesc]:
    """Variables that are read but neither fed nor computed, with the first op that reads each."""
    variables = program.blocks[0].vars
    missing: dict[str, OpDesc] = {}
    for op in program.blocks[0].ops:
        for name in op.reads():
            if name not in known and _is_temporary(variables.get(name)):
                missing.setdefault(name, op)
        known.update(op.writes() if op.type != "feed" else ())
    return missing


def _is_temporary(var: ir.VarDesc | None) -> bool:
    """Whether a declared variable is a tensor that lives for one run only."""
    return var is not None and var.holds_tensor and not var.persistable
