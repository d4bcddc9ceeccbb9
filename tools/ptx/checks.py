"""Checks of accesses, and errors that name the kernel, the instruction and the thread."""

from __future__ import annotations

from compiler.ir.types import Array
from tools.ptx.errors import BarrierFault, MemoryFault, PtxError
from tools.ptx.group import Group, Mask
from tools.ptx.instructions import Instruction


def where(group: Group, instruction: Instruction, lane: int, more: int) -> str:
    """A thread in words, and how many others do the same."""
    others = f" and {more} more" if more else ""
    cta, thread = int(group.numbers[lane]), int(group.thread[lane])
    return f"{group.kernel.name}, PTX line {instruction.line}: CTA {cta}, thread {thread}{others}"


def fault(
    group: Group,
    instruction: Instruction,
    lanes: Array,
    at: Array,
    what: str,
    kind: type[PtxError] = MemoryFault,
) -> PtxError:
    """The error of an access of some lanes at these addresses."""
    place = where(group, instruction, int(lanes[0]), len(lanes) - 1)
    return kind(
        f"{place}: address {int(at[0]):#x} {what}", op=instruction.text, source=instruction.place
    )


def require(
    group: Group, instruction: Instruction, lanes: Array, at: Array, holds: Array, what: str
) -> None:
    """Raise MemoryFault unless a condition holds for every lane."""
    if not holds.all():
        raise fault(group, instruction, lanes[~holds], at[~holds], what)


def require_whole_warps(group: Group, instruction: Instruction, mask: Mask) -> None:
    """Raise BarrierFault if a part of a warp executes an instruction of whole warps."""
    if mask is None:
        return
    warps = group.warps(mask)
    parts = warps.any(1) & ~warps.all(1)
    if parts.any():
        lane = int(parts.argmax()) * warps.shape[1]
        text = f"{where(group, instruction, lane, 0)}: only a part of the warp takes part"
        raise BarrierFault(text, op=instruction.text, source=instruction.place)
