"""Detects which machine this CPU is."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from compiler.codegen.native.machine import MACHINES, Machine
from compiler.errors import CompileError, did_you_mean
from compiler.support.settings.fluid import FLUID_CPU
from compiler.support.settings.setting import Environ

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_CPUINFO = Path("/proc/cpuinfo")
_RENAMED = {
    "abm": "lzcnt", "bmi1": "bmi", "asimd": "neon", "fma3": "fma", "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
}  # fmt: skip
"""Features that Linux and NumPy name differently from LLVM."""
_IMPLIED = {
    "avx2": ("bmi", "bmi2", "lzcnt"),
    "avx512_skx": ("avx512bw", "avx512dq", "avx512vl"),
    "avx512_clx": ("avx512vnni",),
    "avx512_spr": ("avx512vnni", "avx512bf16"),
}
"""Features that every CPU with another one has, which NumPy does not always list."""


def host_machine(environ: Environ = None) -> Machine:
    """The most capable machine that this CPU is, or the one that `FLUID_CPU` names.

    Raises CompileError for an unknown name, for a machine whose code this CPU does not run, and if
    the CPU is none of them.
    """
    name, found = FLUID_CPU.read(environ), supported()
    if name in found:
        return found[name]
    names = ", ".join(found) or f"none ({platform.machine()})"
    if name in MACHINES:
        raise CompileError(f"{FLUID_CPU.name} is {name!r}, but this CPU runs code for: {names}")
    if name:
        hint = did_you_mean(name, MACHINES) or f"this CPU runs code for: {names}"
        raise CompileError(f"{FLUID_CPU.name} names no CPU: {name!r}", hint=hint)
    if not found:
        raise CompileError(f"no native code for this CPU ({platform.machine()})")
    return next(iter(found.values()))


def detected() -> Machine | None:
    """The most capable machine that this CPU is; None if it is none of them."""
    return next(iter(supported().values()), None)


@cache
def supported() -> dict[str, Machine]:
    """The machines whose code this CPU runs, the most capable first."""
    architecture = _ARCHITECTURES.get(platform.machine().lower(), "")
    features = _features()
    return {
        name: machine
        for name, machine in MACHINES.items()
        if machine.triple.split("-")[0] == architecture and features.issuperset(machine.features)
    }


def _features() -> set[str]:
    """The CPU's features by LLVM's names: from Linux, elsewhere from NumPy, which asks the CPU."""
    try:
        return parse_cpuinfo(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return numpy_features()


def parse_cpuinfo(text: str) -> set[str]:
    r"""The features of the first processor in the text of `/proc/cpuinfo`, by LLVM's names.

    >>> sorted(parse_cpuinfo("processor : 0\nflags : fma abm avx2"))
    ['avx2', 'fma', 'lzcnt']
    """
    for line in text.splitlines():
        key, _, names = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return {_RENAMED.get(name, name) for name in names.split()}
    return set()


def numpy_features() -> set[str]:
    """The features that NumPy found, by LLVM's names; none if it does not list them."""
    core = import_module("numpy._core._multiarray_umath")
    listed: Mapping[str, bool] = getattr(core, "__cpu_features__", {})
    features = {name.lower() for name, present in listed.items() if present}
    implied = {feature for name in features for feature in _IMPLIED.get(name, ())}
    return {_RENAMED.get(name, name) for name in features} | implied
