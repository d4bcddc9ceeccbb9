"""Values of a loop kept for later passes over it, as the exponentials of a softmax.

An expensive value that a reduction computes in each iteration, and a later pass needs again, is
stored in the stack's memory, if the row is short enough for the first cache.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from compiler.codegen.native.llvm_ir import POINTER, Value, zero
from compiler.codegen.native.loops.forms import Axis, Form
from compiler.codegen.native.loops.passes import Pass, is_expensive
from compiler.codegen.native.loops.sorting import Sorting
from compiler.codegen.native.loops.types import REGISTER
from compiler.codegen.trace import Expr, ordered
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

KEPT_BYTES = threshold(
    "kept_row", 1 << 14, "bytes", "values of a longer row are computed again in a later pass",
    small=48,
)  # fmt: skip


@dataclass
class Keeping(Sorting):
    """Keeps values of a loop; `rows` are where they are kept, and the loop."""

    passes: list[Pass] = field(default_factory=list[Pass])
    rows: dict[Expr, tuple[Value, int]] = field(default_factory=dict[Expr, "tuple[Value, int]"])

    def worth_keeping(self, each: Pass, lane: Axis) -> list[Expr]:
        """The values that a pass along lanes of a loop computes and a later one needs."""
        loop = min(each.loops)
        axes = self.body.loop_axes(loop)
        later = self.passes[self.passes.index(each) + 1 :]
        again = {p for other in later if other.loops == each.loops for p in other.parts}
        found = [
            part
            for part in each.parts
            if part in again and is_expensive(part) and lane in self.body.axes(part)
            and part.dtype.is_float
        ]  # fmt: skip
        count = product([axis.size for axis in axes])
        plain = lane is axes[-1] and all(axis.outer is None for axis in axes)
        if not plain or not isinstance(count, int) or loop in self.body.ends:
            return []
        outermost = [e for e in found if not any(e in ordered(o) for o in found if o is not e)]
        nbytes = sum(count * REGISTER[part.dtype].nbytes for part in outermost)
        return outermost if nbytes <= KEPT_BYTES.value else []

    def keep(self, parts: Sequence[Expr], loop: int) -> None:
        """Store the values of the current iteration."""
        for part in parts:
            value = self.value(part)
            room = self._row(part, loop)
            place = self.f.address(room, self.index(self._place(loop)), value.type.nbytes)
            if self.mask is None or not value.type.lanes:
                self.f.store(value, place)
            else:
                self.f.masked_store(value, place, self.mask)

    def know_kept(self, parts: Sequence[Expr], loop: int) -> None:
        """Note that a pass over a loop has kept values."""
        self.rows |= {part: (self._row(part, loop), loop) for part in parts}

    def _row(self, part: Expr, loop: int) -> Value:
        """Memory for the values of a loop."""
        count = product([axis.size for axis in self.body.loop_axes(loop)])
        text = f"alloca [{count} x {REGISTER[part.dtype]}], align 64"
        return self.at_depth(0, ("row", part), lambda: self.f.value(POINTER, text))

    def _place(self, loop: int) -> Form:
        """The number of the current iteration."""
        axes = self.body.loop_axes(loop)
        steps = [product([axis.size for axis in axes[n + 1 :]]) for n in range(len(axes))]
        return Form(tuple(zip(axes, steps, strict=True)))

    def rows_kept(self) -> Container[Expr]:
        """The values that an earlier pass kept."""
        return self.rows

    def kept(self, part: Expr) -> Value | None:
        """The value of the current iteration, if it was kept."""
        if part not in self.rows:
            return None
        room, loop = self.rows[part]
        axes = self.body.loop_axes(loop)
        if any(axis not in self.bound for axis in axes):
            return None
        type = REGISTER[part.dtype].vector(self.lanes_of(self.body.axes(part)))
        if type.lanes and self.lane is not axes[-1]:
            return None
        place = self.f.address(room, self.index(self._place(loop)), type.nbytes)
        if self.mask is None or not type.lanes:
            return self.f.load(type, place)
        return self.f.masked_load(type, place, self.mask, zero(type))
