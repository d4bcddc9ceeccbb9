"""Arguments of a kernel: addresses of operands and symbolic sizes, loaded before all loops."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.kernel import SLOT
from compiler.codegen.native.llvm_ir import I64, POINTER, Type, Value, constant
from compiler.codegen.native.loops.scopes import Scopes
from compiler.ir.dims import Dim, Size


class Arguments:
    """Loads arguments: a slot for each operand, then one for each size in the order of use."""

    def __init__(self, scopes: Scopes, operands: Mapping[str, NumpyOperand]) -> None:
        self.sizes: dict[Dim, Value] = {}
        self._scopes = scopes
        self._slots = {name: slot for slot, name in enumerate(operands)}

    def pointer(self, operand: NumpyOperand) -> Value:
        """The address of an operand's first element."""
        slot = self._slots[operand.name]
        key = "pointer", operand.name
        return self._scopes.at_depth(0, key, lambda: self._load(slot, POINTER))

    def size(self, size: Size) -> Value:
        """A size as a number."""
        if isinstance(size, int):
            return constant(I64, size)
        if size not in self.sizes:
            slot = len(self._slots) + len(self.sizes)
            with self._scopes.f.at(self._scopes.levels[0].place):
                self.sizes[size] = self._load(slot, I64)
        return self.sizes[size]

    def _load(self, slot: int, type: Type) -> Value:
        f = self._scopes.f
        return f.load(type, f.address(f.parameters[0], slot * SLOT))
