"""Where a vector of sums belongs in every operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from compiler.codegen.native.llvm_ir import Function, Type, Value, zero
from compiler.codegen.native.products.axes import Axis
from compiler.support.dataclass import dataclass

Pointers: TypeAlias = "Mapping[str, Value]"
"""An address in each operand, by name."""


@dataclass(frozen=True)
class ResultAddresses:
    """Where a vector of sums belongs: addresses of its first element in every operand.

    `mask` holds for the lanes in use; None if all are. `loaded` are vectors of operands that the
    places of a tile share, by their addresses.
    """

    function: Function
    lanes: int
    types: Mapping[str, Type]
    pointers: Pointers
    columns: Axis
    mask: Value | None
    loaded: dict[str, Value] = field(default_factory=dict[str, Value], kw_only=True)

    def load(self, name: str) -> Value:
        """An operand's elements: contiguous ones, or one for all lanes where it is broadcast."""
        pointer = self.pointers[name]
        value = self.loaded.get(pointer.name)
        if value is None:
            value = self._loaded(self.types[name], pointer, self.columns.stride(name) == 0)
            if name != "out":
                self.loaded[pointer.name] = value
        return value

    def _loaded(self, element: Type, pointer: Value, is_broadcast: bool) -> Value:
        if is_broadcast:
            return self.function.splat(self.function.load(element, pointer), self.lanes)
        type = element.vector(self.lanes)
        if self.mask is None:
            return self.function.load(type, pointer)
        return self.function.masked_load(type, pointer, self.mask, zero(type))

    def store(self, name: str, value: Value) -> None:
        """Store the lanes in use."""
        if self.mask is None:
            self.function.store(value, self.pointers[name])
        else:
            self.function.masked_store(value, self.pointers[name], self.mask)
