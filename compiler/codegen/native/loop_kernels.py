"""Kernels as loops in a step: lowered, and their calls appended."""

from __future__ import annotations

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.native.frame import NativeFrame
from compiler.codegen.native.loops import lower


def emit_loops(frame: NativeFrame, kernel: KernelBody, exactly: bool = False) -> None:
    """Lower a kernel to loops, and append its call to the step; `exactly` as in `check_sizes`."""
    frame.check_sizes(kernel, exactly)
    for made in lower(kernel, frame.machine, frame.scratch):
        frame.command(made.kernel, made.arguments)
