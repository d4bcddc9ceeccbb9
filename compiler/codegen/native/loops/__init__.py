"""Loops from the kernel IR: any `KernelBody` as LLVM IR for a CPU.

Read `lower` first, then `passes` and `units` (lanes and units of work), `body` and `forms`
(affine indices); by `equal_kernels`, equal kernels are lowered once. The emitter of a kernel has
`scopes` (the open loops and the values known in them), `arguments`, `values` (expressions, with
their `indices`, accesses to `memory`, a `row_cache` and rows that `sorting` orders), `loops`, and
the passes of `reductions`.
"""

from compiler.codegen.native.loops.body import NotLowered
from compiler.codegen.native.loops.equal_kernels import KernelLowering
from compiler.codegen.native.loops.lower import LoweredKernel

__all__ = ["KernelLowering", "LoweredKernel", "NotLowered"]
