"""Programs on the PTX machine: their kernels are compiled ahead of time, as for a GPU elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from compiler.codegen.module import Module
from compiler.options import Cache
from runtime.gpu.cuda import gpu_of, interprets, machine, stream_of
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, Row
from runtime.gpu.package import driver_of, with_launchers

__all__ = ["launchers", "with_machine_code"]


def with_machine_code(module: Module) -> tuple[Module, Mapping[str, Any]]:
    """The module and the globals that replace its kernels, if `FLUID_GPU` names the PTX machine.

    Raises CompileError if Triton is missing, and UnsupportedInstruction for PTX that the machine
    does not execute.
    """
    device = machine()
    if module.target != "triton" or not device or interprets():
        return module, {}
    driver = driver_of(device, gpu_of(device))
    return with_launchers(module, launchers(module, device, lambda name: driver))


def launchers(module: Module, device: str, driver: Callable[[str], Driver]) -> dict[str, Launcher]:
    """The kernels of a module, compiled for the machine, by name; `driver` is that of a kernel."""
    build = import_module("compiler.codegen.ahead.build").build
    rows = import_module("compiler.codegen.ahead.manifest").kernel_rows
    targets = import_module("compiler.codegen.ahead.gpus").gpus(gpu_of(device))
    cache = Cache.from_env()
    (built,) = build([module], targets, cache.folder, cache.limit)
    stream = stream_of(device)
    pairs = zip(map(Row.of, rows(built)), built, strict=True)
    return {
        row.kernel: Launcher(row, driver(row.kernel), each.code.files["ptx"], stream)
        for row, each in pairs
    }
