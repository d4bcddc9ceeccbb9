"""Ops that reduce whole tensors before an elementwise part, for example to their norm."""

from __future__ import annotations

from typing import ClassVar

from compiler.ir.opdef.definition import OpDef

KEY = "Key"
"""The slot for a tensor of RNG keys, one of which belongs to the op."""


class Whole(OpDef):
    """An elementwise op that depends on global sums over its tensor (two-phase reduction).

        def measure(self, xp, X):            # the summands, by name
            return {"squares": X * X}

        def compute(self, xp, X, squares):   # each element of the outputs, or a scalar
            return {"Out": X / xp.sqrt(squares)}

    Device kernels are generated from these two; `numpy` is the host implementation. An op without
    sums that also has a `kernel` body uses that one unless it is part of a multi-tensor launch.
    `sizing` are attributes that only determine the size of its tensors or the index of its RNG key.
    `Key` is the RNG key tensor of its kernels.
    """

    sizing: ClassVar[frozenset[str]] = frozenset()
