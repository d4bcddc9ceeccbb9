"""The sizes that a module is bound to, solved from the shapes of its feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.errors import ShapeError, did_you_mean
from compiler.ir.dims import Size, evaluate, solve
from compiler.ir.types import Array
from compiler.pack import Lifetime
from compiler.plan import Tensor
from runtime.errors import missing_feed, wrong_dtype, wrong_shape

T = TypeVar("T")
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def fed(tensor: Tensor, given: Mapping[str, T]) -> T:
    """Return the entry of a feed; FeedError if it is missing."""
    if tensor.name not in given:
        hint = did_you_mean(tensor.name, given)
        raise missing_feed([(tensor.name, tensor.dtype, tensor.shape)], hint=hint)
    return given[tensor.name]


def checked_feed(tensor: Tensor, feed: Mapping[str, Array]) -> Array:
    """Return the array fed for a tensor, in row-major order."""
    array = np.asarray(fed(tensor, feed), order="C")
    if array.dtype != tensor.dtype:
        raise wrong_dtype(tensor.name, tensor.dtype, str(array.dtype))
    return array


def check_shapes(module: Module, shapes: Mapping[str, Sequence[int]]) -> None:
    """Check that feeds of these shapes fit a module; nothing is allocated.

    Raises FeedError if one is missing, ShapeError if the sizes are inconsistent.
    """
    sizes = sizes_of(module, tuple(tuple(fed(tensor, shapes)) for tensor in module.feeds))
    fitting(buffer_lifetimes(module.buffers, sizes), sizes)


def feed_bytes(module: Module, sizes: Mapping[str, int]) -> int:
    """The bytes of all feeds, given the values of the dims."""
    shapes = [[evaluate(size, sizes) for size in feed.shape] for feed in module.feeds]
    pairs = zip(module.feeds, shapes, strict=True)
    return sum(prod(shape) * np.dtype(tensor.dtype).itemsize for tensor, shape in pairs)


def sizes_of(module: Module, shapes: Shapes) -> dict[str, int]:
    """Solve for the dynamic sizes in the shapes of the feeds, from the actual shapes."""
    sizes: dict[str, int] = {}
    pairs = zip(module.feeds, shapes, strict=True)
    for tensor, shape in sorted(pairs, key=lambda pair: _has_product(pair[0])):
        if len(shape) != len(tensor.shape):
            raise wrong_shape(tensor.name, tensor.shape, shape)
        sizes_text = dict(sizes)
        for size, number in sorted(zip(tensor.shape, shape, strict=True), key=_is_product):
            sizes |= solve(size, number, sizes)
            if evaluate(size, sizes) != number:
                raise wrong_shape(tensor.name, tensor.shape, shape, _sizes_text(sizes_text))
    return sizes


def _has_product(tensor: Tensor) -> bool:
    """Whether a size is a product of names, whose values other tensors determine."""
    return any(_is_product((size, 0)) for size in tensor.shape)


def _is_product(pair: tuple[Size, int]) -> bool:
    """Whether the size of an axis is a product of names."""
    size, _ = pair
    return not isinstance(size, int) and any(len(monomial) > 1 for monomial, _ in size.terms)


def _sizes_text(sizes: Mapping[str, int]) -> str:
    """The sizes that earlier feeds have fixed, as text for a hint."""
    return ", ".join(f"{name} is {size} in earlier feeds" for name, size in sizes.items())


def fitting(lives: list[Lifetime], sizes: Mapping[str, int]) -> list[Lifetime]:
    """Return the lifetimes; ShapeError if a buffer has a negative size."""
    if any(life.size < 0 for life in lives):
        raise misfit(sizes, "a size that follows from them is negative")
    return lives


def unbound(sizes: Mapping[str, int], error: Exception) -> ShapeError:
    """The error for sizes that `bind` raised an error for: a check names the op and its line."""
    if isinstance(error, ValueError) and len(error.args) == 3:
        message, op, source = error.args
        return ShapeError(message, op=op, source=source)
    return misfit(sizes, str(error))


def misfit(sizes: Mapping[str, int], why: str) -> ShapeError:
    """The error for sizes that do not fit each other."""
    sizes_text = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return ShapeError(f"the sizes of the feeds are inconsistent ({sizes_text}): {why}")
