"""Splitting of feeds among devices: rows of arrays, sequences of LoD tensors.

Device i of k gets the rows from i·n//k to (i+1)·n//k of n, so that the counts differ by at most
one and later devices get the larger ones: 3 rows on 2 devices are [0] and [1, 2].
Paddle 1.8 gives ceil(n/k) rows to each, and the rest to the last one (docs/reference_behaviour.md,
"Data-parallel runs").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count, pairwise, takewhile

import numpy as np

from compiler.ir.types import Array
from fluid.framework import Program
from runtime.errors import FeedError
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import Lod, LoDTensor

__all__ = ["boundaries", "lod_names", "split_feed", "split_rows"]

Feed = dict[str, Array]


def boundaries(rows: int, devices: int) -> list[int]:
    """Row boundaries of the shares; one share per device, or per row if there are fewer rows.

    >>> boundaries(3, 2), boundaries(7, 4), boundaries(2, 3)
    ([0, 1, 3], [0, 1, 3, 5, 7], [0, 1, 2])
    """
    shares = min(rows, devices)
    return [index * rows // shares for index in range(shares + 1)] if shares else [0]


def split_feed(
    program: Program, feed: Feed, devices: int, kind: str = "CPU", partial: bool = False
) -> list[Feed]:
    """The feed of each device, as views of the input arrays.

    `feed` maps names to arrays, and `x@LOD0`, … to the offsets of x. A variable with LoD is
    split by its outermost sequences. A persistable variable with one row is copied to every
    device, and is split as the others are if each device gets at least one. With `partial`, for
    programs that compute no gradients, fewer rows than devices leave the last devices without a
    feed. Raises FeedError (EnforceNotMet) if a feed has fewer pieces than there are devices.
    """
    main = program.blocks[0].vars
    names = [name for name in feed if LOD not in name]
    persistable = [name for name in names if main[name].persistable]
    pieces = {name: _pieces(name, feed, devices) for name in names if name not in persistable}
    shares = _expect_enough(pieces, devices, kind, partial)
    pieces |= {name: _copies(name, feed[name], shares, kind) for name in persistable}
    return [_joined(piece[index] for piece in pieces.values()) for index in range(shares)]


def lod_names(name: str, feed: Feed) -> list[str]:
    """The names of the offsets of a value in a feed, one for each level.

    >>> lod_names("x", {"x": np.zeros(3), "x@LOD0": np.array([0, 1, 3])})
    ['x@LOD0']
    """
    return list(takewhile(feed.__contains__, (f"{name}{LOD}{level}" for level in count())))


def split_rows(array: Array, lod: Lod, devices: int) -> Iterator[Array | LoDTensor]:
    """The share of each device of an array, by its outermost sequences if it has LoD."""
    levels = {f"{LOD}{number}": np.asarray(level) for number, level in enumerate(lod)}
    for piece in _pieces("", {"": array, **levels}, devices):
        offsets = [piece[name] for name in levels]
        yield LoDTensor.cut(piece[""], offsets) if offsets else piece[""]


def _pieces(name: str, feed: Feed, devices: int) -> list[Feed]:
    levels = lod_names(name, feed)
    array, offsets = feed[name], [feed[level] for level in levels]
    rows = len(offsets[0]) - 1 if offsets else len(array) if array.ndim else 0
    cuts = boundaries(rows, devices)
    if not offsets:
        return [{name: array[start:stop]} for start, stop in pairwise(cuts)]
    return [_sequences(name, array, offsets, start, stop) for start, stop in pairwise(cuts)]


def _sequences(name: str, array: Array, offsets: list[Array], start: int, stop: int) -> Feed:
    """The outermost sequences from `start` to `stop`, with offsets that begin at 0."""
    result: Feed = {}
    for level, level_offsets in enumerate(offsets):
        inner = level_offsets[start : stop + 1]
        result[f"{name}{LOD}{level}"] = inner - inner[0]
        start, stop = int(inner[0]), int(inner[-1])
    return {name: array[start:stop]} | result


def _copies(name: str, array: Array, shares: int, kind: str) -> list[Feed]:
    """A persistable feed for each device."""
    rows = len(array) if array.ndim else 1
    if rows == 1:
        return [{name: array}] * shares
    if rows >= shares:
        return _pieces(name, {name: array}, shares)
    raise FeedError(
        f"The number({rows}) of samples[{name}] of the current batch does not match the "
        f"count({shares}) of devices({kind}). {name} is a persistable variable: feed one row, "
        f"which every device gets, or at least {shares} rows"
    )


def _expect_enough(pieces: Mapping[str, list[Feed]], devices: int, kind: str, partial: bool) -> int:
    """The number of devices that get a feed; raises FeedError if there are too few."""
    counts = {name: len(piece) for name, piece in pieces.items()}
    if not counts:
        return devices
    name = min(counts, key=counts.__getitem__)
    fewest = counts[name]
    if fewest == devices or (partial and fewest and len(set(counts.values())) == 1):
        return fewest
    raise too_few_rows(name, fewest, devices, kind)


def too_few_rows(name: str, pieces: int, devices: int, kind: str) -> FeedError:
    """The error for a batch that cannot be split among all devices, in the reference's words."""
    cpu = "set CPU_NUM in the environment to a smaller number, or " if kind == "CPU" else ""
    return FeedError(
        f"The number({pieces}) of samples[{name}] of current batch is less than the "
        f"count({devices}) of devices({kind}), currently, it is not allowed",
        hint=f"{cpu}leave out a last batch with fewer rows than devices (drop_last=True)",
    )


def _joined(parts: Iterable[Feed]) -> Feed:
    return dict(chain.from_iterable(part.items() for part in parts))
