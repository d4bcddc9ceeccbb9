"""The LoD of what a body changes, where the body changes that as well.

Such a variable has levels of its own: a body finds them as it was left them, by the run before it
or by what was before all runs, and leaves them for the next. A tensor array to which the first
sequences are written in the body begins with empty levels.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.conversion.block_walk import LOD
from compiler.ir.conversion.body_walk import BlockScan
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Var
from compiler.ir.types import DType, TensorType

OWN = "@OWN"
"""What follows the name of a level in the name of one that only one variable has."""


def changed(inner: BlockScan, written: Sequence[str]) -> list[str]:
    """Those of the names a body writes that come out with another LoD than they went in with."""
    return [name for name in written if name in inner.captured and _changes(inner, name)]


def _changes(inner: BlockScan, name: str) -> bool:
    left = inner.current[name]
    before, after = inner.lod_of(_begun_as(inner, name)), inner.lod_of(left)
    grown = left.type.is_array and len(after) > len(before)
    return before != after and (grown or len(before) == len(after))


def _begun_as(inner: BlockScan, name: str) -> Var:
    """What a captured name stands for when a run begins."""
    found = inner.graph.find(name)
    assert found is not None, name
    return found


def separate(scan: BlockScan, inner: BlockScan, name: str) -> None:
    """Give a variable levels of its own, as many as the body leaves it with."""
    var = inner.captured[name]
    before, count = scan.lod_of(var), len(inner.lod_of(inner.current[name]))
    for own, level in zip(_names(name, count), before, strict=False):
        scan.copied(own, level, level.type)
    for own in _names(name, count)[len(before) :]:
        _begin_empty(scan, own)
    scan.lods[var] = [scan.current[own] for own in _names(name, count)]


def _names(name: str, count: int) -> list[str]:
    return [f"{name}{LOD}{number}{OWN}" for number in range(count)]


def _begin_empty(scan: BlockScan, name: str) -> None:
    out = scan.graph.another(name, TensorType(DType.INT64, (UNKNOWN,), is_array=True))
    attrs = {"dtype": DType.INT64.code, "sizes": [str(UNKNOWN)]}
    scan.graph.op("empty_array", {}, {"Out": [out]}, attrs, last=True)
    scan.note(name, out)


def enter(scan: BlockScan, inner: BlockScan, names: Sequence[str]) -> list[str]:
    """Let a body see the levels of these variables; returns what those are called."""
    found: list[str] = []
    for name in names:
        own = _names(name, len(scan.lod_of(inner.captured[name])))
        inner.lods[inner.current[name]] = [inner.capture(n, scan.current[n]) for n in own]
        found += own
    return found


def leave(inner: BlockScan, names: Sequence[str]) -> None:
    """At the end of a body, put the levels of these variables where the next run finds them."""
    for name in names:
        left = inner.current[name]
        levels = inner.lod_of(left)
        own = _names(name, len(levels))
        for each, level in zip(own, levels, strict=True):
            if level is not inner.current.get(each):
                inner.copied(each, level, level.type)
        inner.lods[left] = [inner.current[each] for each in own]
