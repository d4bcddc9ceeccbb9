"""Compile LLVM IR in the test process: assembly to look at, functions that ctypes calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import pytest

from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.machine import AVX2, AVX512, AVX512BF16, Machine
from runtime.native.memory import Code
from runtime.native.memory import load as load_objects

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

FEATURES = {name for name, on in llvm.get_host_cpu_features().items() if on}
DOT_MACHINES = [each for each in (AVX512BF16,) if FEATURES.issuperset(each.features)]
"""The machines with dot products of bfloat16 and of bytes whose code this CPU runs."""

RUNNABLE = [each for each in (AVX512, AVX2) if FEATURES.issuperset(each.features)]
"""The machines whose code this CPU runs."""

on_machines = pytest.mark.parametrize("machine", RUNNABLE, ids=lambda each: each.name)
"""Run a test for each of them."""


@cache
def target(machine: Machine) -> llvm.TargetMachine:
    """LLVM's code generator for a machine."""
    features = ",".join(f"+{feature}" for feature in machine.features)
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def parsed(ir: str, machine: Machine) -> llvm.ModuleRef:
    """LLVM IR as a verified module for a machine."""
    module = llvm.parse_assembly(ir)
    module.triple = machine.triple
    module.data_layout = str(target(machine).target_data)
    module.verify()
    return module


def assembly_of(ir: str, machine: Machine) -> str:
    """The assembly of LLVM IR."""
    return target(machine).emit_assembly(parsed(ir, machine))


def linked(ir: str, names: tuple[str, ...], machine: Machine) -> Code:
    """Machine code in this process, in one piece; its functions' addresses are valid while it lives."""
    image = bytes(target(machine).emit_object(parsed(ir, machine)))
    return load_objects({"library": image}, {"library": names})


def assembly(kernel: NativeKernel, machine: Machine) -> str:
    """The assembly of a kernel."""
    return assembly_of(kernel.text(), machine)


def load(kernel: NativeKernel, machine: Machine) -> Callable[..., None]:
    """The kernel as a function of (slots, first unit, end of units)."""
    return _loaded(kernel.text(), kernel.name, machine)[0]


@cache
def _loaded(ir: str, name: str, machine: Machine) -> tuple[Callable[..., None], object]:
    """The function, and the library that must live as long as it."""
    library = linked(ir, (name,), machine)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return kind(library.addresses[name]), library
