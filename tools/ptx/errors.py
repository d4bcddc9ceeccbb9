"""Errors of the PTX machine; they name the kernel, the PTX line and that of its source."""

from __future__ import annotations

from runtime.errors import PlaceError
from tools.ptx.instructions import Instruction


class PtxError(PlaceError):
    """PTX that cannot be read or executed."""


class PtxSyntaxError(PtxError):
    """Text that is no PTX, with its line."""


class UnsupportedInstruction(PtxError):
    """An opcode, modifier or directive that the machine does not execute."""


class LaunchError(PtxError):
    """A launch that a driver would refuse: its grid, block, shared memory or arguments."""


class MemoryFault(PtxError):
    """An access outside of what the kernel was given, or one that is not aligned."""


class BarrierFault(PtxError):
    """A barrier or an instruction of a warp that some of its threads do not reach."""


class Hazard(PtxError):
    """An access whose result depends on the order of threads, or on when a copy lands."""


class Unwritten(PtxError):
    """A read of device memory that neither a kernel nor the host has written."""


def unsupported(instruction: Instruction, what: str = "") -> UnsupportedInstruction:
    """The error for an instruction that the machine does not execute."""
    detail = f" ({what})" if what else ""
    return UnsupportedInstruction(
        f"{instruction.name} is not executed{detail}",
        op=instruction.text,
        source=instruction.place,
    )
