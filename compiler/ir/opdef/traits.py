"""What the class of an op says of it beside its slots, attributes and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Traits:
    """Plain facts, of which an op's class says those that are not as here."""

    has_effects: ClassVar[bool] = False
    """True for what must run though nobody reads its outputs."""
    starts_early: ClassVar[bool] = False
    """True for what begins communication: it runs as soon as it can."""
    waits_late: ClassVar[bool] = False
    """True for what waits for communication: it runs just before its result is read."""
    is_composite: ClassVar[bool] = False
    """True for an op that becomes other ops as soon as a program becomes a graph."""
    is_random: ClassVar[bool] = False
    """True for what gives other numbers every time, and so is no constant."""
    lod_like: ClassVar[str | None] = None
    """The slot whose LoD the outputs share that have as many rows; None for the first input."""
    device_epilogue: ClassVar[str] = ""
    """The same where kernels of a device make it."""
    epilogue_grad: ClassVar[str] = ""
    """The input whose gradient is such an output of the gradient op, on a device."""
    epilogue: ClassVar[str] = ""
    """The output with which pointwise ops of its shape may go on in the same kernel: then it needs
    no memory of its own, and code for the op may apply them to each part it makes."""
    rows_like: ClassVar[str] = ""
    """The slot whose row numbers the outputs share, for what works element by element on values."""
    linear_in: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of inputs in each of which the outputs are linear, while the other groups stay."""
    is_piecewise_linear: ClassVar[bool] = False
    """True for an op of one input, element by element, that is straight but for some corners."""
    computes_in_fp32: ClassVar[bool] = True
    """False for what only moves numbers, or must see them as they are: float16 stays what it is."""
    sets_output_sizes: ClassVar[bool] = False
    """True where the `triton` body tells the sizes of outputs that only data decides."""
    updates_if: ClassVar[str] = ""
    """The input that must not stop gradients for the op's gradient to be computed, where that
    updates a parameter and is no tensor."""
    sparse_grads: ClassVar[tuple[str, ...]] = ()
    """The inputs whose gradient may be sparse: `grad` then returns `W_rows` beside `W`."""
    no_kernel_reason: ClassVar[str] = ""
    """Why the op has no kernels and shall have none; empty for an op that may have them."""

    def joins_rows(self, ranks: Mapping[str, int]) -> bool:
        """Whether the rows of Out are those of all in X, one behind the other, given the ranks."""
        return False

    def no_kernel_for_attributes(self) -> str:
        """Why this op has no kernels with these attributes, where others of its class have some."""
        return ""
