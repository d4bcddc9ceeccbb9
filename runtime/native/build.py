"""Compiles LLVM IR text to object files with llvmlite; the only module that imports it.

llvmlite is imported at the first compilation, since its library takes a tenth of a second to load.
A lock in llvmlite serialises all its calls, although LLVM compiles modules of different contexts
in parallel; the calls that compile a kernel are made without that lock.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import local
from typing import Any

from compiler.codegen.native.machine import Machine
from compiler.errors import CompileError
from compiler.support.extras import install
from compiler.support.fork_delay import delay_forks
from compiler.support.lazy_loading import load

OPTIONS = ("-disable-lsr",)
"""Options of LLVM, for the whole process. Loop strength reduction takes half of the time of a
compilation, and lets address registers spill: kernels are no slower without it."""

UNOPTIMISED = " optnone {"
"""What ends the heads of functions in a module that LLVM compiles at its lowest level, in a quarter
of the time: the executor, whose few instructions for a command are not what takes time."""

_SLOW = ("LLVMPY_ParseAssembly", "LLVMPY_TargetMachineEmitToMemory")
_QUICK = (
    "LLVMPY_ContextCreate", "LLVMPY_ContextDispose", "LLVMPY_SetTarget", "LLVMPY_SetDataLayout",
    "LLVMPY_CreateTargetMachineData", "LLVMPY_CopyStringRepOfTargetData",
    "LLVMPY_DisposeTargetData", "LLVMPY_DisposeModule", "LLVMPY_DisposeString",
    "LLVMPY_GetBufferStart", "LLVMPY_GetBufferSize", "LLVMPY_DisposeMemoryBuffer",
)  # fmt: skip
"""The functions of LLVM that compile a kernel. Threads give Python's lock away for the slow ones
only: to get it back from a thread that is busy takes milliseconds."""

_held = local()
"""For each thread, its LLVM target machines."""


def build(kernels: Mapping[str, str], machine: Machine, threads: int = 1) -> dict[str, bytes]:
    """Compile kernels, from their names and IR texts to object files, by several threads.

    Raises CompileError for IR that LLVM does not accept, with the kernel and the line, and if
    llvmlite cannot be imported.
    """
    if kernels:
        _llvm()
    with delay_forks():  # a child would free LLVM's objects, whose lock another thread may hold
        if threads < 2 or len(kernels) < 2:
            return {name: _object(name, text, machine) for name, text in kernels.items()}
        return _by_several(threads, kernels, machine)


def _by_several(threads: int, kernels: Mapping[str, str], machine: Machine) -> dict[str, bytes]:
    longest_first = sorted(kernels.items(), key=lambda each: -len(each[1]))
    with ThreadPoolExecutor(min(threads, len(kernels)), "fluid-build") as pool:
        jobs = {name: pool.submit(_object, name, text, machine) for name, text in longest_first}
        return {name: jobs[name].result() for name in kernels}


def assembly(text: str, machine: Machine) -> str:
    """The assembly of IR text; of any of the machines, whatever this CPU is."""
    with delay_forks():
        target = _target(machine, 0 if UNOPTIMISED in text else 2)
        return str(target.emit_assembly(_parsed("kernel", text, target, machine.triple)))


def llvm_version() -> str:
    """The installed version of llvmlite, which determines LLVM's, without importing it.

    Empty if it is not installed.
    """
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    text = Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")
    version = re.search(r"version_version = '([^']+)'", text)
    return version[1] if version else text


def link(objects: Sequence[bytes], names: Sequence[str]) -> tuple[dict[str, int], object]:
    """Load object files with LLVM's linker; for systems that `elf` does not serve.

    Returns the addresses of the functions, and an object that keeps their memory.
    """
    llvm = _llvm()
    linker, number = _linker()
    with delay_forks():
        library = llvm.JITLibraryBuilder()
        for code in objects:
            library.add_object_img(code)
        for name in names:
            library.export_symbol(name)
        number.append(len(number))
        linked = library.add_current_process().link(linker, f"fluid{number[-1]}")
        return {name: int(linked[name]) for name in names}, linked


@cache
def _llvm() -> Any:
    """Return `llvmlite.binding`, initialised; CompileError if it cannot be imported."""
    try:
        llvm = load(lambda: import_module("llvmlite.binding"))
    except (ImportError, OSError) as error:
        hint = f"{install('native')}, or take the NumPy target: FLUID_TARGET=numpy"
        raise CompileError(f"native code needs llvmlite: {error}", hint=hint) from error
    with delay_forks():
        for option in OPTIONS:
            llvm.set_option("fluid", option)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    for name in (*_SLOW, *_QUICK):
        _unlock(llvm.ffi.lib, name)
    return llvm


class _NoLock:
    """A lock that is never held."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _unlock(library: Any, name: str) -> None:
    """Let threads call a function of llvmlite at once; without effect if it has no lock.

    A quick one is called with Python's lock held.
    """
    function: Any = getattr(library, name, None)
    called: Any = getattr(function, "_cfn", None)
    if not isinstance(called, ctypes._CFuncPtr):  # pyright: ignore
        return
    if name in _QUICK:
        quick = ctypes.PyDLL(library._name, handle=library._handle)[name]
        quick.argtypes, quick.restype = called.argtypes, called.restype
        function._cfn = quick
    function._lock = _NoLock()


@cache
def _linker() -> tuple[Any, list[int]]:
    """LLVM's linker, and the numbers of its libraries so far."""
    return _llvm().create_lljit_compiler(), []


def _object(name: str, text: str, machine: Machine) -> bytes:
    target = _target(machine, 0 if UNOPTIMISED in text else 2)
    triple = machine.triple if sys.platform == "linux" else str(_llvm().get_process_triple())
    return bytes(target.emit_object(_parsed(name, text, target, triple)))


def _target(machine: Machine, level: int) -> Any:
    """This thread's LLVM target machine for a level of optimisation."""
    targets: dict[tuple[str, int], Any] = _held.__dict__.setdefault("targets", {})
    key = machine.name, level
    if key not in targets:
        features = ",".join(f"+{feature}" for feature in machine.features)
        targets[key] = _architecture(machine.triple).create_target_machine(
            cpu=machine.cpu, features=features, opt=level, reloc="pic", codemodel="small"
        )
    return targets[key]


def _architecture(triple: str) -> Any:
    """LLVM's code generator for an architecture; others than this CPU's take 7 ms to initialise."""
    llvm = _llvm()
    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(triple)


def _parsed(name: str, text: str, target: Any, triple: str) -> Any:
    """Parse IR in a context of its own; CompileError with the line if it is invalid."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise _parse_error(name, text, str(error)) from error
    module.triple = triple
    module.data_layout = str(target.target_data)
    return module


def _parse_error(name: str, text: str, message: str) -> CompileError:
    """An error that shows the line of IR which LLVM's message points to."""
    match = re.search(r"<string>:(\d+):\d+: error: (.*)", message)
    if match is None:
        return CompileError(f"LLVM does not accept the IR of kernel {name}: {message}")
    number, reason = int(match[1]), match[2]
    line = "".join(text.splitlines()[number - 1 : number]).strip()
    return CompileError(
        f"LLVM does not accept line {number} of the IR of kernel {name}: {reason}", source=line
    )
