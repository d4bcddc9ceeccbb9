"""Compile kernels, call them from NumPy, and guard the margins of their arrays."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.machine import AVX2, AVX512, NEON, Machine
from compiler.ir.dims import Dim, Size, evaluate

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

HERE = set(llvm.get_host_cpu_features())
FEATURES = {name for name, on in llvm.get_host_cpu_features().items() if on}
RUNNABLE = [each for each in (AVX512, AVX2) if FEATURES.issuperset(each.features)]
"""The machines whose code runs here."""

MARGIN = 64
"""Elements before and behind each array that no kernel may touch."""


@lru_cache
def target(machine: Machine) -> Any:
    """LLVM's code generator for a machine."""
    features = ",".join(f"+{each}" for each in machine.features)
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def parsed(kernel: NativeKernel, machine: Machine) -> Any:
    """The kernel as a verified module."""
    module = llvm.parse_assembly(kernel.text())
    module.triple = machine.triple
    module.data_layout = str(target(machine).target_data)
    module.verify()
    return module


def assembly(kernel: NativeKernel, machine: Machine) -> str:
    """The kernel's assembly."""
    return target(machine).emit_assembly(parsed(kernel, machine))


_kept: list[Any] = []


@lru_cache(None)
def _compiler() -> Any:
    return llvm.create_lljit_compiler()


def compiled(kernel: NativeKernel, machine: Machine) -> Any:
    """The kernel as a function of (slots, first, last)."""
    image = target(machine).emit_object(parsed(kernel, machine))
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    library = builder.export_symbol(kernel.name).link(_compiler(), f"library{len(_kept)}")
    _kept.append(library)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return kind(library[kernel.name])


def guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The whole of a buffer with margins of NaN, and a copy of the array inside it."""
    buffer = np.full(array.size + 2 * MARGIN + 1, np.nan, array.dtype)
    inside = buffer[MARGIN + 1 : MARGIN + 1 + array.size].reshape(array.shape)
    inside[...] = array
    return buffer, inside


def run_call(
    call: Any, machine: Machine, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int],
    shares: Sequence[int] = (),
) -> None:  # fmt: skip
    """Run a call's units, divided at `shares` (fractions in percent), in falling order."""
    function, slots = compiled(call.kernel, machine), (ctypes.c_int64 * len(call.arguments))()
    for place, each in enumerate(call.arguments):
        slots[place] = (
            evaluate(each, sizes) if isinstance(each, Dim | int) else arrays[each].ctypes.data
        )
    units = evaluate(call.kernel.units, sizes)
    cuts = sorted({0, units, *(units * share // 100 for share in shares)})
    for first, last in reversed(list(pairwise(cuts))):
        function(ctypes.addressof(slots), first, last)


def run_steps(
    steps: Any, machine: Machine, arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None, shares: Sequence[int] = (),
) -> dict[str, np.ndarray]:  # fmt: skip
    """Run all calls on guarded copies of the arrays; returns the arrays after it."""
    sizes = sizes or {}
    dtype = next(iter(arrays.values())).dtype
    scratch = {
        name: np.full(evaluate(size, sizes), np.nan, dtype) for name, size in steps.scratch.items()
    }
    pairs = {name: guarded(each) for name, each in {**arrays, **scratch}.items()}
    inside = {name: pair[1] for name, pair in pairs.items()}
    for call in (*steps.prepare, *steps.calls):
        run_call(call, machine, inside, sizes, shares)
    for name, (buffer, array) in pairs.items():
        margins = np.concatenate([buffer[: MARGIN + 1], buffer[MARGIN + 1 + array.size :]])
        assert np.isnan(margins).all(), f"the kernel wrote around {name!r}"
    return inside


def on_machines(test: Any) -> Any:
    """Run a test for each machine of this CPU."""
    return pytest.mark.parametrize("machine", RUNNABLE, ids=lambda each: each.name)(test)


__all__ = ["NEON", "Size", "assembly", "compiled", "on_machines", "run_call", "run_steps"]
