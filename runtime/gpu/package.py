"""A package on a GPU: its kernels are launched by the GPU's driver, without Triton."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from compiler.codegen.module import Module
from compiler.support.settings.fluid import FLUID_ORDER, FLUID_PERTURB
from compiler.support.syntax_trees import syntax_tree
from runtime.errors import PlaceError
from runtime.gpu.cuda import MACHINES, gpu_of, is_checked, stream_of
from runtime.gpu.drivers import Driver, ptx_machine
from runtime.gpu.launches import Launcher, ManifestRow, by_name
from runtime.packages import Package, PackageError


def on_device(package: Package, device: str) -> tuple[Module, dict[str, Any]]:
    """Return a package's module without the text of its kernels, and the kernels as extra globals.

    Raises PackageError if there is no code for the device, PlaceError if its driver rejects it.
    """
    gpu = fitting(package.gpus, gpu_of(device))
    return prepared(package, gpu, driver_of(device, gpu), stream_of(device))


def driver_of(device: str, gpu: str) -> Driver:
    """The driver of a device, which has this architecture; the PTX machine is one of its own."""
    number = device.partition(":")[2]
    if device in MACHINES:
        return Driver("cuda", 0, machine_library(device))
    return Driver(gpu.partition(":")[0], int(number or 0))


def machine_library(device: str) -> Any:
    """The PTX machine, in place of libcuda, with the checks that the environment asks for.

    Raises PlaceError for an invalid `FLUID_ORDER`, and if the machine is not installed.
    """
    machine = ptx_machine("library")
    return machine.Library(
        int(device.partition(":")[2]),
        hazards=machine.Hazards() if is_checked(device) else None,
        order=FLUID_ORDER.read(error=PlaceError),
        perturbs=FLUID_PERTURB.read(error=PlaceError),
    )


def prepared(
    package: Package, gpu: str, driver: Driver, stream: Any
) -> tuple[Module, dict[str, Any]]:
    """The same for a GPU architecture that there is code for, with its driver and stream."""
    module = package.module()
    rows = [row for row in package.rows if row.gpu == gpu]
    launchers = by_name(
        Launcher(row, driver, package.read(_file(row, driver)), stream) for row in rows
    )
    missing = [spec.name for spec in module.kernels if spec.name not in launchers]
    if missing:
        raise PackageError(f"{package.folder} has no code for the kernel {missing[0]} on {gpu}")
    return with_launchers(module, launchers)


def with_launchers(
    module: Module, launchers: Mapping[str, Launcher]
) -> tuple[Module, dict[str, Any]]:
    """A module without the text of its kernels, and what it finds in their place."""
    names = {"tl": SimpleNamespace(int32="int32", int64="int64"), **launchers}
    return replace(module, source=without_kernels(module.source)), names


def _file(row: ManifestRow, driver: Driver) -> str:
    """The file that a driver loads: the PTX machine takes the assembly."""
    return row.file if driver.announce is None else row.file.removesuffix(".cubin") + ".ptx"


def fitting(there: Sequence[str], gpu: str) -> str:
    """Select the architecture whose code runs on this GPU; PackageError if there is none.

    Code for compute capability 8.0 runs on all 8.x; from 9.0 on it runs only on the same one.

    >>> fitting(["cuda:80", "cuda:90"], "cuda:86")
    'cuda:80'
    """
    if gpu in there:
        return gpu
    maker, _, core = gpu.partition(":")
    older = [gpu_name for gpu_name in there if maker == "cuda" and _runs(gpu_name, core)]
    if not older:
        names = ", ".join(there) or "no GPU"
        hint = f"compile the model with --target {gpu}"
        raise PackageError(f"the package has code for {names}, not for {gpu}", hint=hint)
    return max(older)


def _runs(each: str, core: str) -> bool:
    """Whether code for one compute capability runs on another, later one."""
    maker, _, own = each.partition(":")
    same = maker == "cuda" and len(own) == len(core) == 2 and own[0] == core[0]
    return same and own < core and own < "90"


def without_kernels(source: str) -> str:
    """Blank out everything in a module's source that needs Triton, keeping line numbers."""
    lines = source.split("\n")
    for node in syntax_tree(source).body:
        if _needs_triton(node):
            first = min([node.lineno, *(decorator.lineno for decorator in _decorators(node))])
            last = cast(int, node.end_lineno)
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines)


def _needs_triton(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == "triton" for alias in node.names)
    if isinstance(node, ast.FunctionDef):
        return any(map(_reads_triton, _decorators(node)))
    return _reads_triton(node)


def _reads_triton(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Name) and child.id == "triton" for child in ast.walk(node))


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef) else []
