"""Kernels of programs compiled ahead of their first step, in parallel, as for a GPU elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from compiler.codegen.module import Module
from compiler.options import Cache
from compiler.support.processors import available_processors
from runtime.device import CUDAPlace, Place
from runtime.gpu.cuda import device_of, gpu_count, gpu_of, interprets, machine, stream_of
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, ManifestRow, by_name
from runtime.gpu.package import driver_of, with_launchers

__all__ = ["launchers", "with_machine_code"]


def with_machine_code(module: Module, place: Place) -> tuple[Module, Mapping[str, object]]:
    """The module and the globals that replace its kernels, if they are compiled ahead.

    Raises CompileError if Triton is missing or a kernel does not compile, and
    UnsupportedInstruction for PTX that the machine does not execute.
    """
    device = _device(place) if module.target == "triton" and not interprets() else ""
    if not device:
        return module, {}
    driver = driver_of(device, gpu_of(device))
    return with_launchers(module, launchers(module, device, lambda name: driver))


def _device(place: Place) -> str:
    """The device that kernels are compiled ahead for; empty if Triton compiles at launches."""
    if wanted := machine():
        return wanted
    return device_of(place) if isinstance(place, CUDAPlace) else ""


def _processes(module: Module) -> int:
    """How many kernels are compiled at once: where each GPU has a process, each takes its share."""
    ranks = gpu_count() if module.collectives else 1
    return max(1, available_processors() // max(1, ranks))


def launchers(module: Module, device: str, driver: Callable[[str], Driver]) -> dict[str, Launcher]:
    """The kernels of a module, compiled for a device, by name; `driver` is that of a kernel."""
    build = import_module("compiler.codegen.ahead.build").build
    manifest = import_module("compiler.codegen.ahead.manifest")
    targets = import_module("compiler.codegen.ahead.gpus").gpus(gpu_of(device))
    cache = Cache.from_env()
    (built,) = build([module], targets, cache.folder, cache.limit, processes=_processes(module))
    stream = stream_of(device)
    created: list[Launcher] = []
    for row, kernel in zip(map(ManifestRow.of, manifest.kernel_rows(built)), built, strict=True):
        own = driver(row.kernel)  # the PTX machine takes the assembly
        suffix = "ptx" if own.announce is not None else manifest.LOADED[own.maker]
        created.append(Launcher(row, own, kernel.code.files[suffix], stream))
    return by_name(created)
