"""Random numbers in kernels, from a key in memory and an element's index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term
from compiler.ir.dims import Size


def keys_from(keys: NumpyOperand, place: int) -> NumpyOperand:
    """A view of a tensor of keys from index `place`. Kernels load the first key of the view."""
    if place == 0:
        return keys
    view = f"{keys}.reshape(-1)[{place}:]"
    name = keys.writer.keep(view, keys.steady, keys.storage[0], f"{keys}_at")
    offset = keys.region.offset + place * keys.type.dtype.itemsize
    storage = (*keys.storage[:2], replace(keys.region, offset=offset))
    type = keys.type.with_shape((keys.type.numel - place,))
    return replace(keys, name=name, storage=storage, type=type)


def random_element(
    kernel: KernelBody,
    part: Expr,
    keys: NumpyOperand,
    sizes: Sequence[Size],
    indices: Sequence[Term],
) -> Expr:
    """Lower a keyed random tensor to the current element's number."""
    key = kernel.key(keys_from(keys, cast(int, part.extra)))
    return kernel.uniform(key, kernel.ravel(indices, sizes))
