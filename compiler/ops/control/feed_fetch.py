"""Ops with which the executor passes values in and out, and frees them."""

from __future__ import annotations

from compiler.ir.opdef import HostOp, Slots, reads, required, writes
from compiler.ir.types import TensorType


class Feed(HostOp, op="feed"):
    """Out = column `col` of the feeds, represented by X. Reference: feed_op.cc."""

    no_kernel_reason = "the host owns feeds, fetches and variables"

    X = reads()
    Out = writes()
    col = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}


class Fetch(HostOp, op="fetch"):
    """Column `col` of the fetches, represented by Out, = X. Reference: fetch_op.cc."""

    no_kernel_reason = "the host owns feeds, fetches and variables"

    X = reads()
    Out = writes()
    col = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}


class DeleteVar(HostOp, op="delete_var"):
    """Free the memory of X. Reference: delete_var_op.cc."""

    no_kernel_reason = "the host owns feeds, fetches and variables"

    X = reads(many=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}
