"""Ops that wait for streams of a device. Here values wait for values, so they copy or vanish."""

from __future__ import annotations

from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, writes


class CSyncCalcStream(Pointwise, op="c_sync_calc_stream"):
    """Out = X. A collective behind it reads what is computed, so there is nothing to wait for.

    Reference: collective/c_sync_calc_stream_op.cc.
    """

    rows_like = "X"

    X = reads()
    Out = writes(inplace="X")

    def compute(self, xp: Xp, X: Value) -> Value:
        return X


class CSyncCommStream(CSyncCalcStream, op="c_sync_comm_stream"):
    """Out = X. What reads the result of a collective waits for it by itself.

    Reference: collective/c_sync_comm_stream_op.cc.
    """

    ring_id = attr(0)
