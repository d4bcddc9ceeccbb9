"""Which code generator a program is compiled with."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

from compiler.codegen.native.host import detected
from compiler.options import Options
from compiler.support.extras import install
from compiler.support.user_warnings import warn_user
from runtime.device import CUDAPlace, Place
from runtime.gpu.cuda import device_of, gpu_of, interprets, machine


def chosen_target(target: str, options: Options) -> str:
    """The target of a compilation: for the CPU the one that the options name, or the default.

    The first time that it is NumPy only because llvmlite is missing, a warning says so.
    """
    chosen = target if target == "triton" else options.target
    if chosen:
        return chosen
    if _runs_native_code() and not _compiles_native_code():
        _warn_of_numpy()
    return default_target()


def options_for(place: Place, options: Options) -> Options:
    """The options with the GPU of a place, whose measured tiles are used, unless they name one.

    Triton's interpreter is no GPU; the PTX machine executes kernels, and calls no libraries. Raises
    PlaceError if there is no such GPU.
    """
    if options.gpu or not isinstance(place, CUDAPlace) or interprets():
        return options
    libraries = options.libraries and not machine()
    return replace(options, gpu=gpu_of(device_of(place)), libraries=libraries)


@cache
def default_target() -> str:
    """The target of programs on the CPU where none is chosen.

    Native code on Linux, for an x86-64 CPU with AVX2, if llvmlite is installed; else NumPy.
    """
    return "native" if _runs_native_code() and _compiles_native_code() else "numpy"


def _runs_native_code() -> bool:
    machine = detected()
    is_x86 = machine is not None and machine.triple.startswith("x86_64")
    return is_x86 and sys.platform == "linux"


def _compiles_native_code() -> bool:
    return find_spec("llvmlite") is not None


@cache
def _warn_of_numpy() -> None:
    text = "llvmlite is not installed: programs run as NumPy calls, slower than machine code"
    warn_user(f"{text} ({install('native')})")
