"""Which code generator a program is compiled with."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

from compiler.codegen.native.host import detected
from compiler.options import Options
from runtime.device import CUDAPlace, Place
from runtime.gpu.cuda import device_of, gpu_of, interprets


def chosen_target(target: str, options: Options) -> str:
    """The target of a compilation: for the CPU the one that the options name, or the default."""
    return target if target == "triton" else options.target or default_target()


def options_for(place: Place, options: Options) -> Options:
    """The options with the GPU of a place, whose measured tiles are used, unless they name one.

    Triton's interpreter is no GPU. Raises PlaceError if there is no such GPU.
    """
    if options.gpu or not isinstance(place, CUDAPlace) or interprets():
        return options
    return replace(options, gpu=gpu_of(device_of(place)))


@cache
def default_target() -> str:
    """The target of programs on the CPU where none is chosen.

    Native code on Linux, for an x86-64 CPU with AVX2, if llvmlite is installed; else NumPy.
    """
    machine = detected()
    runs = machine is not None and machine.triple.startswith("x86_64") and sys.platform == "linux"
    return "native" if runs and find_spec("llvmlite") is not None else "numpy"
