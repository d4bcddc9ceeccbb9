"""LoD that changes in a loop or branch, carried from one iteration to the next.

Such a variable gets its own level vars: the body captures them as the previous iteration, or the
code before the loop, left them, and updates them for the next one. A tensor array whose first write
is in the body starts with empty levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.conversion.block_walk import BlockWalk
from compiler.ir.conversion.companions import LOD
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Var
from compiler.ir.types import DType, TensorType

OWN = "@OWN"
"""The suffix of level names that belong to a single variable."""


def changed(inner: BlockWalk, written: Sequence[str]) -> list[str]:
    """List the written names whose LoD differs between entry and exit of the body."""
    return [name for name in written if name in inner.current.captured and _changes(inner, name)]


def _changes(inner: BlockWalk, name: str) -> bool:
    left = inner.current[name]
    before, after = inner.companions.lod_of(_entry_var(inner, name)), inner.companions.lod_of(left)
    grown = left.type.is_array and len(after) > len(before)
    return before != after and (grown or len(before) == len(after))


def _entry_var(inner: BlockWalk, name: str) -> Var:
    """Return the var of a captured name at entry of the body."""
    var = inner.graph.find(name)
    assert var is not None, name
    return var


def separate(walk: BlockWalk, inner: BlockWalk, name: str) -> None:
    """Copy the levels of a variable to vars of its own, as many as the body produces."""
    var = inner.current.captured[name]
    before, count = walk.companions.lod_of(var), len(inner.companions.lod_of(inner.current[name]))
    for own, level in zip(_names(name, count), before, strict=False):
        walk.copied(own, level, level.type)
    for own in _names(name, count)[len(before) :]:
        _create_empty(walk, own)
    walk.companions.lods[var] = [walk.current[own] for own in _names(name, count)]


def _names(name: str, count: int) -> list[str]:
    return [f"{name}{LOD}{number}{OWN}" for number in range(count)]


def _create_empty(walk: BlockWalk, name: str) -> None:
    out = walk.graph.another(name, TensorType(DType.INT64, (UNKNOWN,), is_array=True))
    attrs = {"dtype": DType.INT64.code, "sizes": [str(UNKNOWN)]}
    walk.graph.op("empty_array", {}, {"Out": [out]}, attrs, last=True)
    walk.current.define(name, out)


def enter(walk: BlockWalk, inner: BlockWalk, names: Sequence[str]) -> list[str]:
    """Capture the levels of these variables in a body; returns the names of the levels."""
    level_names: list[str] = []
    for name in names:
        own = _names(name, len(walk.companions.lod_of(inner.current.captured[name])))
        inner.companions.lods[inner.current[name]] = [
            inner.current.capture(n, walk.current[n]) for n in own
        ]
        level_names += own
    return level_names


def leave(inner: BlockWalk, names: Sequence[str]) -> None:
    """Write the levels of these variables to their carried vars at the end of a body."""
    for name in names:
        left = inner.current[name]
        levels = inner.companions.lod_of(left)
        own = _names(name, len(levels))
        for level_name, level in zip(own, levels, strict=True):
            if level is not inner.current.get(level_name):
                inner.copied(level_name, level, level.type)
        inner.companions.lods[left] = [inner.current[level_name] for level_name in own]
