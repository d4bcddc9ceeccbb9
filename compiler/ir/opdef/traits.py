"""Traits of an op class: flags besides its slots, attributes and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Traits:
    """Flags with their defaults, overridden by op classes."""

    has_effects: ClassVar[bool] = False
    """True for ops with side effects, which run even if their outputs are unused."""
    schedule_early: ClassVar[bool] = False
    """True for ops that start communication: scheduled as early as possible."""
    schedule_late: ClassVar[bool] = False
    """True for ops that wait for communication: scheduled right before their result is read."""
    is_composite: ClassVar[bool] = False
    """True for ops that are expanded into other ops when a program is converted to a graph."""
    is_random: ClassVar[bool] = False
    """True for ops that return different values in every run, so that they are not constant."""
    lod_source: ClassVar[str | None] = None
    """The input whose LoD outputs with as many rows share; None: the first input."""
    uses_offsets: ClassVar[bool] = True
    """False for ops that only choose or copy LoD, and never use its offsets as indices."""
    derives_offsets: ClassVar[bool] = False
    """True for ops whose output LoD is valid if the LoD that they read is, whatever their data."""
    device_epilogue: ClassVar[str] = ""
    """The output to which device kernels can fuse an epilogue; see `epilogue`."""
    epilogue_grad: ClassVar[str] = ""
    """The input whose gradient is such an output of the gradient op, on a device."""
    epilogue: ClassVar[str] = ""
    """The output to which pointwise ops of its shape can be fused (epilogue): it then needs no
    memory, and the op's code may apply them tile by tile.
    """
    rows_like: ClassVar[str] = ""
    """The input whose row indices the outputs share, for elementwise ops on sparse gradients."""
    linear_in: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of inputs; the outputs are linear in each group while the other groups are fixed."""
    is_piecewise_linear: ClassVar[bool] = False
    """True for a unary elementwise op that is piecewise linear."""
    computes_in_fp32: ClassVar[bool] = True
    """False for ops that only move elements or need their exact bits: halves are not upcast."""
    sets_output_sizes: ClassVar[bool] = False
    """True if the `kernel` body sets data-dependent sizes of outputs."""
    updates_if: ClassVar[str] = ""
    """For a gradient op that updates a parameter in place of returning a gradient: the input that
    disables it with `stop_gradient`.
    """
    sparse_grads: ClassVar[tuple[str, ...]] = ()
    """The inputs whose gradient may be sparse: `grad` then returns `W_rows` in addition to `W`."""
    x_shape_axis: ClassVar[int] = 0
    """The axis of size 0 of an output XShape, 0 or -1; its other sizes are those of X."""
    grad_like: ClassVar[Mapping[str, str]] = {}
    """Inputs that the gradient op lacks, each with an operand that it has of the same shape."""
    no_kernel_reason: ClassVar[str] = ""
    """Why the op has no device kernel by design (host fallback); empty if it may have one."""

    def concatenates_rows(self, ranks: Mapping[str, int]) -> bool:
        """Return whether the rows of Out are those of all X concatenated, given the ranks."""
        return False

    def no_kernel_for_attributes(self) -> str:
        """Return why the op has no device kernel for these attributes; empty if it may have one."""
        return ""
