"""Ops that look at a tensor as a whole before they go through it: at its norm, most of all."""

from __future__ import annotations

from typing import ClassVar

from compiler.ir.opdef.definition import OpDef

KEY = "Key"
"""The slot of a tensor of keys, one of which is the op's own."""


class Whole(OpDef):
    """An op that goes element by element once it knows sums over all elements of its tensors.

        def measure(self, xp, X):            # what is summed, by name
            return {"squares": X * X}

        def compute(self, xp, X, squares):   # each element of the outputs, or a single number
            return {"Out": X / xp.sqrt(squares)}

    Kernels of a device are made of these two; `numpy` says the same for the host. One that sums
    nothing, and has a `triton` body too, goes by that where it is alone. `sizing` are attributes
    that say no more than how large its tensors are, or where its key stands. `Key` is the key that
    it draws random numbers by, for kernels.
    """

    sizing: ClassVar[frozenset[str]] = frozenset()
