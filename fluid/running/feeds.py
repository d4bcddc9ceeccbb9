"""Conversion of user feeds to the arrays and LoD offsets that compiled steps take."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from compiler.errors import did_you_mean
from compiler.ir.program import VarDesc
from compiler.ir.types import Array
from fluid.framework import Program
from runtime.errors import FeedError
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["Feeds", "expect_names", "feed_arrays", "sole", "with_batches"]

T = TypeVar("T")

_NUMBERS: tuple[type, ...] = (int, float, np.number, np.bool_)

Feeds: TypeAlias = (
    Mapping[str, object] | list[Mapping[str, object]] | tuple[Mapping[str, object], ...]
)
"""Values by variable, or a list of one such mapping."""


def feed_arrays(
    program: Program, feed: Feeds | Sequence[Mapping[str, object]] | None
) -> dict[str, Array]:
    """Convert feeds to arrays; raises if `feed` is not a dict or a value is not an array."""
    if feed is None:
        return {}
    if isinstance(feed, list | tuple):
        feed = sole(feed)
    if not isinstance(feed, dict) and not isinstance(feed, Mapping):
        raise TypeError(f"feed must be a dict from names to arrays, not {type(feed).__name__}")
    variables = program.blocks[0].vars
    named: Mapping[str, object] = feed
    if not named.keys() <= variables.keys():
        named = _known(named, variables)
    arrays: dict[str, Array] = {}
    offsets: dict[str, Array] = {}
    for name, value in named.items():
        if type(value) is np.ndarray:
            arrays[name] = value
            continue
        arrays[name] = _array(variables[name], value)
        if type(value) is LoDTensor and _may_have_lod(variables[name]):
            offsets |= _offsets(name, value)
    return arrays | offsets if offsets else arrays


def _may_have_lod(var: VarDesc) -> bool:
    """Whether the LoD of a feed is used: state of static size has none."""
    return not var.persistable or -1 in (var.dims or ())


def _offsets(name: str, value: LoDTensor) -> dict[str, Array]:
    """The LoD offsets of a feed; raises ValueError if they do not match the data."""
    offsets = value.offsets()
    if offsets is None:
        raise FeedError(f"feed {name!r} has the LoD {value.lod()}, but {value.shape()} elements")
    return {f"{name}{LOD}{i}": level for i, level in enumerate(offsets)}


def expect_names(feed: Mapping[str, T]) -> Mapping[str, T]:
    """Return the feeds; raises TypeError for a key that is not a string."""
    names: list[object] = [*feed]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a key of feed must be a name, not {type(name).__name__}")
    return feed


def _known(feed: Mapping[str, object], variables: Mapping[str, VarDesc]) -> dict[str, object]:
    """The feeds of variables the program has; warns about each of the others."""
    for name in expect_names(feed):
        if name not in variables:
            hint = did_you_mean(name, variables)
            text = f"feed {name!r} is ignored: the program has no such variable"
            warnings.warn(f"{text}; {hint}" if hint else text, stacklevel=5)
    return {name: value for name, value in feed.items() if name in variables}


def sole(feed: Sequence[T]) -> T:
    """The single dict of a list with one entry per device."""
    if len(feed) != 1:
        raise AssertionError(
            f"a list of {len(feed)} feeds requires a program compiled with data parallel; "
            "without one, feed a dict or a list of one"
        )
    return feed[0]


def _array(var: VarDesc, value: object) -> Array:
    """Convert a feed to an array: without a copy from a LoDTensor, else a copy."""
    if isinstance(value, list):
        raise RuntimeError(
            f"feed {var.name!r} is a Python list: feed np.array(…, dtype='{var.element.numpy}'), "
            "or fluid.create_lod_tensor(…) for sequences of several lengths"
        )
    if isinstance(value, _NUMBERS):
        return _number(var, value)
    if isinstance(value, LoDTensor):
        if (array := value.read()) is None:
            raise FeedError(f"feed {var.name!r} is an empty LoDTensor", hint="set its values first")
        return array
    try:
        array = np.asarray(value)
    except (OverflowError, ValueError) as error:  # such as rows of several lengths
        raise FeedError(f"feed {var.name!r} must be an array, but {error}") from error
    if array.dtype == object:
        raise FeedError(f"feed {var.name!r} must be an array, but received {value!r:.60}")
    return array


def _number(var: VarDesc, value: object) -> Array:
    """Convert a number to the dtype of a feed; raises FeedError if it does not fit."""
    try:
        return np.full((1,) * max(1, len(var.dims or ())), value, var.element.numpy)
    except (OverflowError, ValueError) as error:
        what = f"feed {var.name!r} must be {var.element.numpy}, which cannot hold {value!r:.60}"
        raise FeedError(what) from error


def with_batches(program: Program, feed: Feeds | None) -> dict[str, object]:
    """A feed completed with the next batch of every reader whose variables it lacks."""
    return program.feed_with_batches(sole(feed) if isinstance(feed, list | tuple) else feed or {})
