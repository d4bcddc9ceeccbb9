"""Copies between host and device memory."""

from __future__ import annotations

from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.types import Array, TensorType


class ToDevice(OpDef, op="to_device"):
    """Out = X, in device memory. Not a program op: inserted by the compiler."""

    no_kernel_reason = "it copies between host and device"

    X = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def numpy(self, X: Array) -> Array:
        return X


class ToHost(OpDef, op="to_host"):
    """Out = X, in host memory. Not a program op: inserted by the compiler."""

    no_kernel_reason = "it copies between host and device"

    X = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def numpy(self, X: Array) -> Array:
        return X
