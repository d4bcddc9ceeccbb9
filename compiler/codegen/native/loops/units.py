"""Units of work: which iterations of the grid one call of a kernel may do alone.

Units are the outermost axes, and chunks of one axis after them, so that each has enough work to be
worth a thread's attention, and there are enough of them to share.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import LoopAxis
from compiler.codegen.native.loops.passes import hint
from compiler.ir.dims import Size, product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

MIN_WORK = threshold(
    "unit_work", 8192, "iterations of grid and loops",
    "a unit of work has at least so many; a kernel with more is shared by threads", small=24,
)  # fmt: skip
TARGET_UNITS = threshold(
    "units", 128, "units", "a kernel is not divided into more units of about equal work", small=7
)
BLOCK = threshold(
    "lane_block", 64, "lanes apart in memory", "so many go along another axis together", small=16
)


@dataclass
class Nest:
    """The loops of the grid: `outer` axes whose indices the unit's number has, then `inner` ones.

    `number` is the unit's last digit, the chunk of the first inner axis, if that is divided.
    """

    outer: list[LoopAxis]
    number: LoopAxis | None
    inner: list[LoopAxis]

    @property
    def units(self) -> Size:
        """The number of units."""
        return product([axis.size for axis in self.digits])

    @property
    def digits(self) -> list[LoopAxis]:
        """The axes that the number of a unit consists of, outermost first."""
        return [*self.outer, *([] if self.number is None else [self.number])]


def nest_of(body: Body, lane: LoopAxis | None, step: int) -> Nest:
    """Divide a kernel's grid into units; chunks of the lane axis are multiples of `step`."""
    allowed = shareable(body)
    order = _order(body, lane, allowed, step)
    works = [_loop_work(body)]
    for axis in reversed(order):
        works.insert(0, works[0] * hint(axis.iterations))
    target = max(MIN_WORK.value, works[0] // TARGET_UNITS.value)
    for place, axis in enumerate(order):
        if axis not in allowed or axis.outer is not None:
            return Nest(order[:place], None, order[place:])
        if works[place + 1] < target or axis is lane:
            chunk = -(-target // works[place + 1])
            return _chunked(order, place, chunk, step if axis is lane else 1)
    return Nest(order, None, [])


def _order(body: Body, lane: LoopAxis | None, allowed: set[LoopAxis], step: int) -> list[LoopAxis]:
    """The axes of the grid as loops, the lane axis innermost.

    If lanes are apart in memory, but contiguous along another axis, blocks of lanes go along that
    axis together, so that each cache line is used while it is in the cache.
    """
    order = [axis for axis in body.grid if axis is not lane]
    order = [a for a in order if a in allowed] + [a for a in order if a not in allowed]
    if lane is None:
        return order
    across = _axis_across(body, lane)
    block = -(-BLOCK.value // step) * step
    if across is None or lane not in allowed or hint(lane.size) <= block:
        return [*order, lane]
    number = LoopAxis(f"{lane.name}_block", (lane.size + block - 1) // block)
    lane.outer, lane.chunk = number, block
    allowed.add(number)
    return [*(axis for axis in order if axis is not across), number, across, lane]


def _axis_across(body: Body, lane: LoopAxis) -> LoopAxis | None:
    """The axis along which an access is contiguous whose lanes are apart; None if there is none."""
    if body.kernel.loops or any(store.atomic for store in body.stores):
        return None
    forms = [body.load_address(part) for part in body.parts if part.fn == "load"]
    forms += [body.store_address(store) for store in body.stores]
    apart = [form for form in forms if form.coefficient(lane) not in (0, 1)]
    candidates = (
        axis
        for form in apart
        for axis, step in form.terms
        if step == 1 and isinstance(axis, LoopAxis) and axis in body.grid
    )
    return next(candidates, None)


def _chunked(order: Sequence[LoopAxis], place: int, chunk: int, step: int) -> Nest:
    """The nest in which the axis at a place is divided into chunks."""
    axis, chunk = order[place], -(-chunk // step) * step
    outer, rest = list(order[:place]), list(order[place + 1 :])
    if isinstance(axis.size, int) and chunk >= axis.size:
        return Nest(outer, None, [axis, *rest])
    number = LoopAxis(f"{axis.name}_chunk", (axis.size + chunk - 1) // chunk)
    axis.outer, axis.chunk = number, chunk
    return Nest(outer, number, [axis, *rest])


def _loop_work(body: Body) -> int:
    total = 1
    for loop in range(len(body.kernel.loops)):
        total += hint(product([axis.iterations for axis in body.loop_axes(loop)]))
    return total


def shareable(body: Body) -> set[LoopAxis]:
    """The axes whose iterations are independent: any, unless elements are added to in memory.

    Then an index must be of the axis alone, so that iterations add to different elements.
    """
    axes = set(body.grid)
    for store in (store for store in body.stores if store.atomic):
        forms = [body.forms.of(index) for index in store.indices]
        single = {form.terms[0][0] for form in forms if len(form.terms) == 1}
        axes &= {atom for atom in single if isinstance(atom, LoopAxis)}
    return axes
