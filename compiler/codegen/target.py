"""The interface of a code generator: two methods."""

from __future__ import annotations

from typing import Protocol

from compiler.codegen.module import Module
from compiler.ir.attention import AttentionSupport
from compiler.ir.graph import Op
from compiler.ir.libraries import ChooseLibrary
from compiler.plan import Plan


class Target(Protocol):
    """A code generator for one kind of device."""

    name: str
    on_device: bool
    """True if the ops assigned to it read and write the memory of a device."""

    @property
    def multiplies_bytes(self) -> bool:
        """True if it has products of int8 whose sums are integers."""
        ...

    @property
    def attention(self) -> AttentionSupport:
        """The kernels of attention that it has."""
        ...

    @property
    def libraries(self) -> ChooseLibrary | None:
        """What chooses the products that a library of the device's vendor computes, if any."""
        ...

    def supports(self, op: Op) -> str:
        """Empty if this target has code for an op; otherwise the reason it does not."""
        ...

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; with `poison` it overwrites memory after its last use, and
        native kernels check the bounds of every access.

        With `check_numbers` it stops at the first op that computes NaN or an infinite number.
        """
        ...
