"""Long sums of few lanes as several kernels: parts by many programs, then what the parts make.

One program that goes through a million numbers keeps one processor of a hundred busy. Cut into
parts, each lane of each part gives what its turns make into scratch memory, and a second kernel
joins the parts, in their order: results do not differ from run to run. Where a reduction waits for
another one (a variance for its mean, a softmax for its largest), the first is joined before the
second begins; what is stored for every turn has a lane for each at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.trace import Expr, Term, ordered
from compiler.codegen.triton.expressions import held_in, levels_of, reach_of, roots_of
from compiler.codegen.triton.kernel_ir import KernelBody, Ref, Store
from compiler.codegen.triton.tiling.schedules import ELEMENTS, ENOUGH, STEP, form_of, guess
from compiler.ir.dims import Size, product
from compiler.ir.types import DType, Shape

Scratch = Callable[[Sequence[Size], DType], NumpyOperand]
"""Gives working memory of the device."""

PARTS = 4 * ENOUGH
"""Programs that parts are to make, about."""

SHORT = 4 * ELEMENTS
"""Numbers that one program may as well go through by itself, for each time it does."""


def split(lanes: KernelBody, scratch: Scratch) -> list[KernelBody]:
    """A kernel as several in their order, where its sums are long and its lanes few."""
    cut = _cut(lanes)
    return [lanes] if cut is None else _Split(lanes, *cut, scratch).kernels()


def _cut(lanes: KernelBody) -> tuple[int, Size] | None:
    """How many parts, and how many turns each has; None where one kernel does as well."""
    count = product(lanes.shape)
    levels = levels_of(lanes.stores)
    if len(lanes.loops) != 1 or lanes.ends or not levels or not isinstance(count, int):
        return None
    form, size = form_of(lanes), lanes.loops[0]
    programs, turns = max(1, -(-count // form.lanes)), guess(size)
    if 2 * programs > ENOUGH or min(count, form.lanes) * turns <= SHORT * len(levels):
        return None
    step = STEP[form.across]
    parts = min(PARTS // programs, -(-turns // (2 * step)))
    part = -(-size // (parts * step)) * step
    return (-(-size // part) if isinstance(size, int) and isinstance(part, int) else parts), part


@dataclass
class _Split:
    """Writes the kernels of a split one, level by level of its reductions."""

    whole: KernelBody
    count: int
    part: Size
    scratch: Scratch
    totals: dict[Expr, list[NumpyOperand]] = field(default_factory=dict[Expr, "list[NumpyOperand]"])

    def kernels(self) -> list[KernelBody]:
        """Parts and joins in turn, and what is stored of them."""
        *levels, last = levels_of(self.whole.stores)
        made: list[KernelBody] = []
        for level in levels:
            partial = self._room(level, (self.count, *self.whole.shape))
            made += [self._parts(partial), self._join(partial)]
        partial = self._room(last, (self.count, *self.whole.shape))
        made.append(self._parts(partial))
        if not any(self._turning(store) for store in self.whole.stores):
            return [*made, self._joined_and_stored(partial)]
        return [*made, self._join(partial), *self._stores()]

    def _room(self, level: Sequence[Expr], shape: Shape) -> dict[Expr, list[NumpyOperand]]:
        """Working memory for what reductions give: a number each, or the three of moments."""
        return {
            part: [self.scratch(shape, held_in(part.dtype)) for _ in _told(self.whole, part)]
            for part in level
        }

    def _parts(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel with a lane for each part of each lane."""
        lanes = KernelBody(f"{self.whole.name}_parts", (self.count, *self.whole.shape))
        lanes.part = self.part
        known = self._known(lanes, lanes.indices[1:], lanes.loop(self.whole.loops[0]))
        for part, rooms in partial.items():
            values = _told(lanes, cast(Expr, _again(lanes, part, known)))
            for room, value in zip(rooms, values, strict=True):
                lanes.store(Ref(lanes, room, lanes.shape), lanes.indices, value)
        return lanes

    def _join(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel that goes through the parts of each lane, and keeps what they make."""
        lanes = KernelBody(f"{self.whole.name}_join", self.whole.shape)
        self.totals |= self._room(list(partial), self.whole.shape or (1,))
        for part, values in self._values(lanes, partial).items():
            for room, value in zip(self.totals[part], values, strict=True):
                lanes.store(Ref(lanes, room, lanes.shape), lanes.indices, value)
        return lanes

    def _joined_and_stored(self, partial: dict[Expr, list[NumpyOperand]]) -> KernelBody:
        """A kernel that goes through the parts of each lane, and stores what the whole one does."""
        lanes = KernelBody(self.whole.name, self.whole.shape)
        known = self._known(lanes, lanes.indices, None)
        for part, values in self._values(lanes, partial).items():
            known |= zip(_told(self.whole, part), values, strict=True)
        return self._stored(lanes, self.whole.stores, known)

    def _values(
        self, lanes: KernelBody, partial: dict[Expr, list[NumpyOperand]]
    ) -> dict[Expr, list[Expr]]:
        """What the parts of each reduction make."""
        r, shape = lanes.loop(self.count), (self.count, *self.whole.shape)
        return {
            part: _joined(lanes, part, [Ref(lanes, n, shape)[(r, *lanes.indices)] for n in own], r)
            for part, own in partial.items()
        }

    def _stores(self) -> list[KernelBody]:
        """Kernels for what is stored once a lane, and for what is stored in every turn."""
        groups: dict[bool, list[Store]] = {}
        for store in self.whole.stores:
            groups.setdefault(self._turning(store), []).append(store)
        return [self._every(own) if turning else self._once(own) for turning, own in groups.items()]

    def _once(self, stores: list[Store]) -> KernelBody:
        lanes = KernelBody(self.whole.name, self.whole.shape)
        return self._stored(lanes, stores, self._known(lanes, lanes.indices, None))

    def _every(self, stores: list[Store]) -> KernelBody:
        """A lane for each turn of each lane; what lies side by side goes last."""
        size, shape = self.whole.loops[0], self.whole.shape
        if form_of(self.whole).across:
            lanes = KernelBody(self.whole.name, (size, *shape))
            turn, *own = lanes.indices
        else:
            lanes = KernelBody(self.whole.name, (*shape, size))
            *own, turn = lanes.indices
        return self._stored(lanes, stores, self._known(lanes, own, turn))

    def _stored(
        self, lanes: KernelBody, stores: list[Store], known: dict[Expr, Term]
    ) -> KernelBody:
        """Stores of the whole kernel in one of its lanes."""
        for store in stores:
            indices, value, where = store.indices, store.value, store.where
            out = Ref(lanes, store.operand, store.shape)
            guard = None if where is None else _again(lanes, where, known)
            place = [_again(lanes, each, known) for each in indices]
            put = lanes.add if store.adds else lanes.store
            put(out, place, _again(lanes, value, known), guard)
        return lanes

    def _known(
        self, lanes: KernelBody, indices: Sequence[Expr], turn: Expr | None
    ) -> dict[Expr, Term]:
        """What stands for the whole kernel's indices, turns and finished reductions."""
        known: dict[Expr, Term] = dict(zip(self.whole.indices, indices, strict=True))
        if turn is not None:
            known[self.whole.node("loop", (), turn.dtype, 0)] = turn
        for part, rooms in self.totals.items():
            loads = [Ref(lanes, room, self.whole.shape).at(*indices) for room in rooms]
            known |= zip(_told(self.whole, part), loads, strict=True)
        return known

    def _turning(self, store: Store) -> bool:
        reach = reach_of(self.whole)
        return any(reach[root] for root in roots_of([store]))


def _told(lanes: KernelBody, part: Expr) -> list[Expr]:
    """The numbers that a reduction gives: itself, or count, mean and squares."""
    if part.extra != "moments":
        return [part]
    return [lanes.node("moment", (part,), part.dtype, n) for n in range(3)]


def _joined(lanes: KernelBody, part: Expr, own: list[Expr], r: Expr) -> list[Expr]:
    """What a loop over parts makes of what each gave.

    Reference for moments: Chan, Golub, LeVeque, 1983.
    """
    if part.extra != "moments":
        return [lanes.node("reduce", (own[0], r), part.dtype, part.extra)]
    count, mean, squares = own
    total = lanes.sum(count, r)
    middle = lanes.sum(count * mean, r) / lanes.maximum(total, 1.0)
    apart = mean - middle
    return [total, middle, lanes.sum(squares + count * (apart * apart), r)]


def _again(lanes: KernelBody, term: Term, known: dict[Expr, Term]) -> Term:
    """A term of one kernel in another."""
    if not isinstance(term, Expr):
        return term
    for part in ordered(term, known):
        args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in part.args)
        known[part] = lanes.node(part.fn, args, part.dtype, part.extra)
    return known[term]
