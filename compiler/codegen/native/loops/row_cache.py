"""Values of a loop cached for later passes over it, as the exponentials of a softmax.

An expensive value that a reduction computes in each iteration, and a later pass needs again, is
stored in the stack's memory, if the row is short enough for the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.llvm_ir import POINTER, Value, zero
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import Form, LoopAxis
from compiler.codegen.native.loops.indices import IndexEmitter
from compiler.codegen.native.loops.passes import LoopPass, is_expensive
from compiler.codegen.native.loops.types import REGISTER
from compiler.codegen.trace import Expr, ordered
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

KEPT_BYTES = threshold(
    "kept_row", 1 << 14, "bytes", "values of a longer row are computed again in a later pass",
    small=48,
)  # fmt: skip


class RowCache:
    """Stores values of each iteration of a loop, and loads them in later passes."""

    def __init__(self, body: Body, indices: IndexEmitter) -> None:
        self._body = body
        self._indices = indices
        self._scopes = indices.scopes
        self._f = indices.f
        self._rows: dict[Expr, tuple[Value, int]] = {}

    def __contains__(self, part: Expr) -> bool:
        return part in self._rows

    def choose(self, each: LoopPass, later: Sequence[LoopPass], lane: LoopAxis) -> list[Expr]:
        """The values that a pass along lanes of a loop computes, and later ones need again."""
        body, loop = self._body, min(each.loops)
        axes = body.loop_axes(loop)
        again = {p for other in later if other.loops == each.loops for p in other.parts}
        chosen = [
            part
            for part in each.parts
            if part in again and is_expensive(part) and lane in body.axes(part)
            and part.dtype.is_float
        ]  # fmt: skip
        count = product([axis.size for axis in axes])
        plain = lane is axes[-1] and all(axis.outer is None for axis in axes)
        if not plain or not isinstance(count, int) or loop in body.ends:
            return []
        outermost = [e for e in chosen if not any(e in ordered(o) for o in chosen if o is not e)]
        nbytes = sum(count * REGISTER[part.dtype].nbytes for part in outermost)
        return outermost if nbytes <= KEPT_BYTES.value else []

    def store(self, part: Expr, value: Value, loop: int) -> None:
        """Store a value of the current iteration of a loop."""
        mask = self._scopes.lanes.mask
        place = self._element(self._row(part, loop), loop, value.type.nbytes)
        if mask is None or not value.type.lanes:
            self._f.store(value, place)
        else:
            self._f.masked_store(value, place, mask)

    def complete(self, parts: Sequence[Expr], loop: int) -> None:
        """Let later passes load values: a pass over their loop has stored all."""
        self._rows |= {part: (self._row(part, loop), loop) for part in parts}

    def load(self, part: Expr) -> Value | None:
        """The value of the current iteration; None if it is not in the cache."""
        if part not in self._rows:
            return None
        room, loop = self._rows[part]
        axes, lanes = self._body.loop_axes(loop), self._scopes.lanes
        if any(axis not in self._scopes.bound for axis in axes):
            return None
        type = REGISTER[part.dtype].vector(self._scopes.lanes_of(self._body.axes(part)))
        if type.lanes and lanes.axis is not axes[-1]:
            return None
        place = self._element(room, loop, type.nbytes)
        if lanes.mask is None or not type.lanes:
            return self._f.load(type, place)
        return self._f.masked_load(type, place, lanes.mask, zero(type))

    def _row(self, part: Expr, loop: int) -> Value:
        """Memory for the values of a loop."""
        count = product([axis.size for axis in self._body.loop_axes(loop)])
        text = f"alloca [{count} x {REGISTER[part.dtype]}], align 64"
        return self._scopes.at_depth(0, ("row", part), lambda: self._f.value(POINTER, text))

    def _element(self, row: Value, loop: int, nbytes: int) -> Value:
        """The address of the current iteration's value in a row."""
        axes = self._body.loop_axes(loop)
        steps = [product([axis.size for axis in axes[n + 1 :]]) for n in range(len(axes))]
        number = Form(tuple(zip(axes, steps, strict=True)))
        return self._f.address(row, self._indices.index(number), nbytes)
