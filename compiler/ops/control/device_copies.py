"""Copies between the host's memory and the device's."""

from __future__ import annotations

from compiler.ir.opdef import OpDef, reads, writes
from compiler.ir.types import Array, TensorType


class ToDevice(OpDef, op="to_device"):
    """Out = X, in the memory of the device. No op of programs: compiling puts it in."""

    no_kernel_reason = "it goes between both"

    X = reads()
    Out = writes()

    def infer(self, X: TensorType) -> TensorType:
        return X

    def numpy(self, X: Array) -> Array:
        return X


class ToHost(OpDef, op="to_host"):
    """Out = X, in the memory of the host. No op of programs: compiling puts it in."""

    no_kernel_reason = "it goes between both"

    X = reads()
    Out = writes()

    def infer(self, X: TensorType) -> TensorType:
        return X

    def numpy(self, X: Array) -> Array:
        return X
