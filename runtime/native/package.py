"""A package on a CPU: the module of a level, and its object files, loaded without llvmlite."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.module import Module
from compiler.codegen.native.host import supported
from compiler.support.settings.fluid import FLUID_CPU
from compiler.support.settings.setting import Environ
from runtime.native.archive import unpacked
from runtime.packages import OBJECTS, Package, PackageError


def on_cpu(package: Package, environ: Environ = None) -> Module:
    """The module of the most capable level that this CPU has, with its machine code.

    `FLUID_CPU` selects another level. Raises PackageError if there is none for this CPU, or if the
    system does not load ELF object files; BadObject if the code is malformed.
    """
    if sys.platform != "linux":
        levels = ", ".join(package.cpus)
        raise PackageError(
            f"a package for CPUs ({levels}) is loaded on Linux only, not on {sys.platform}",
            hint="run the saved model itself",
        )
    level = fitting(package.cpus, list(supported()), FLUID_CPU.read(environ))
    module = package.module(level)
    if module.target != "native" or module.machine != level:
        raise PackageError(f"the module of {package.folder} for {level} is for {module.machine!r}")
    return replace(module, objects=unpacked(package.read(f"{level}/{OBJECTS}")))


def fitting(there: Sequence[str], here: Sequence[str], wanted: str = "") -> str:
    """Select the level of a package to run, of those that this CPU has, the most capable first.

    `wanted` is the only one to consider, if it is not empty. Raises PackageError if none fits.

    >>> fitting(["avx2", "avx512"], ["avx512", "avx2"])
    'avx512'
    """
    usable = [level for level in here if level in there and wanted in ("", level)]
    if usable:
        return usable[0]
    available = f"the package has code for {', '.join(there) or 'no CPU'}"
    if wanted:
        raise PackageError(
            f"{available}; {FLUID_CPU.name} is {wanted!r}, which is not among them or this CPU's"
        )
    mine = ", ".join(here) or f"none of the known levels ({platform.machine()})"
    hint = (
        f"compile the model with --target cpu:{here[0]}" if here else "run the saved model itself"
    )
    raise PackageError(f"{available}; this CPU has {mine}", hint=hint)
