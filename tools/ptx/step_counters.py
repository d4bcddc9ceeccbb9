"""Counters of a step's kernels, which the PTX machine runs (docs/ptx.md)."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.codegen.module import Module
from compiler.ir.types import Array
from fluid.running.kernels_ahead import launchers
from runtime.device import CUDAPlace
from runtime.gpu.drivers import Driver
from runtime.gpu.package import with_launchers
from runtime.loader import load
from runtime.memory.params import Params
from tools.ptx.counters import Counting
from tools.ptx.library import Library

__all__ = ["count_step"]

CAPABILITY = 80
"""The compute capability of the GPU whose launches are counted."""


def count_step(module: Module, feed: Mapping[str, Array], params: Params | None = None) -> Counting:
    """Run one step of a Triton module on the PTX machine and return the counters of its kernels.

    They are by the kernels' names in the module. Raises CompileError if Triton is missing,
    UnsupportedInstruction for PTX that the machine does not execute, and what a step raises.
    """
    counting, device = Counting(), f"ptx:{CAPABILITY}"

    def driver(name: str) -> Driver:
        return Driver("cuda", 0, Library(CAPABILITY, counting=counting, counted_as=name))

    plain, names = with_launchers(module, launchers(module, device, driver))
    run = load(plain, CUDAPlace(0), params, names=names, device=device)
    run(feed)
    return counting
