"""Ops that wait for device streams; data dependencies already order values, so they are copies."""

from __future__ import annotations

from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, writes


class CSyncCalcStream(Pointwise, op="c_sync_calc_stream"):
    """Out = X. A following collective depends on computed values, so no waiting is needed.

    Reference: collective/c_sync_calc_stream_op.cc.
    """

    rows_like = "X"

    X = reads()
    Out = writes(inplace="X")

    def compute(self, xp: Xp, X: Value) -> Value:
        return X


class CSyncCommStream(CSyncCalcStream, op="c_sync_comm_stream"):
    """Out = X. Readers of a collective's result wait for it themselves.

    Reference: collective/c_sync_comm_stream_op.cc.
    """

    ring_id = attr(0)
