"""Launching a kernel of PTX: what a driver checks, and the call for hand-written PTX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, cast

import numpy as np

from compiler.ir.types import Array
from tools.ptx.errors import LaunchError
from tools.ptx.group import shared_layout
from tools.ptx.instructions import Kernel, Parameter
from tools.ptx.machine import Program, run, translate
from tools.ptx.memory import Memory
from tools.ptx.order import Order
from tools.ptx.text.parser import parse
from tools.ptx.values import DTYPES

USUAL_SHARED = 48 << 10
MOST_SHARED = {70: 96 << 10, 75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}
"""Bytes of shared memory of a block with opting in, by compute capability."""
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_BLOCK = (1024, 1024, 64)


@lru_cache(maxsize=256)
def kernels(text: str) -> Mapping[str, Program]:
    """The kernels of PTX text, translated. Raises PtxSyntaxError or UnsupportedInstruction."""
    return {name: translate(kernel) for name, kernel in parse(text).items()}


def execute(
    text: str,
    name: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    arguments: Sequence[Array | int | float],
    memory: Memory | None = None,
    shared: int = 0,
) -> None:
    """Run a kernel of PTX text over NumPy arrays, which it changes in place.

    An array argument passes its address, and the kernel may use exactly its bytes; read-only arrays
    may not be written. A number is converted to the type of its parameter. `memory` adds what
    arguments do not show, as tables of addresses do; `shared` are bytes of dynamic shared memory.

    >>> x, y = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    >>> execute(PTX, "square", 1, 4, [x, y])     # doctest: +SKIP
    >>> y                                        # doctest: +SKIP
    array([0., 1., 4., 9.], dtype=float32)

    with PTX such as

        .version 8.0
        .target sm_80
        .address_size 64
        .entry square(.param .u64 from, .param .u64 to) {
            .reg .b32 %r<4>;
            .reg .b64 %rd<6>;
            ld.param.b64 %rd1, [from];
            ld.param.b64 %rd2, [to];
            mov.u32 %r1, %tid.x;
            mad.wide.u32 %rd3, %r1, 4, %rd1;
            mad.wide.u32 %rd4, %r1, 4, %rd2;
            ld.global.b32 %r2, [%rd3];
            mul.f32 %r3, %r2, %r2;
            st.global.b32 [%rd4], %r3;
            ret;
        }

    Raises LaunchError, PtxSyntaxError, UnsupportedInstruction, MemoryFault or BarrierFault.
    """
    program = kernels(text).get(name)
    if program is None:
        raise LaunchError(f"there is no kernel {name}, but {', '.join(kernels(text)) or 'none'}")
    target = memory or Memory()
    parameters = _given(program.kernel, arguments, target)
    launch(
        program,
        _three(grid),
        _three(block),
        shared,
        parameters,
        target,
        MOST_SHARED.get(_core(program.kernel), 0),
    )


def launch(
    program: Program,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    parameters: Mapping[str, bytes],
    memory: Memory,
    most_shared: int = USUAL_SHARED,
    order: Order | None = None,
) -> None:
    """Check a launch as a driver does, and run it. Raises LaunchError if it would refuse."""
    expect_launch(program.kernel, grid, block, shared, most_shared)
    hold_variables(program.kernel, memory)
    run(program, grid, block, shared, parameters, memory, order)


def expect_launch(
    kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, most: int
) -> None:
    """Raise LaunchError for sizes that a driver refuses."""
    if not all(0 < size <= limit for size, limit in zip(grid, MOST_GRID, strict=True)):
        raise LaunchError(
            f"{kernel.name}: a grid of {grid}; each size is at least 1, at most {MOST_GRID}"
        )
    if not all(0 < size <= limit for size, limit in zip(block, MOST_BLOCK, strict=True)):
        raise LaunchError(f"{kernel.name}: a block of {block}; at most {MOST_BLOCK}")
    if prod(block) > kernel.most_threads:
        raise LaunchError(f"{kernel.name}: {prod(block)} threads, at most {kernel.most_threads}")
    if kernel.required_threads not in (None, block):
        raise LaunchError(f"{kernel.name}: a block of {block}, .reqntid {kernel.required_threads}")
    whole = shared_layout(kernel)[1] + shared
    if shared < 0 or whole > most:
        raise LaunchError(f"{kernel.name}: {whole} bytes of shared memory, at most {most}")


def hold_variables(kernel: Kernel, memory: Memory) -> None:
    """Give a module's own variables memory, once for each Memory."""
    for variable in kernel.variables.values():
        if variable.space in ("global", "const") and variable.name not in memory.symbols:
            room = np.zeros(variable.nbytes + variable.align, "u1")
            skip = -int(room.ctypes.data) % variable.align
            part = room[skip : skip + variable.nbytes]
            part[: len(variable.data)] = np.frombuffer(variable.data, "u1")
            part.flags.writeable = variable.space == "global"
            memory.symbols[variable.name] = memory.add(variable.name, part)


def _given(kernel: Kernel, arguments: Sequence[Any], memory: Memory) -> Mapping[str, bytes]:
    if len(arguments) != len(kernel.parameters):
        expected = f"{kernel.name} has {len(kernel.parameters)} parameters"
        raise LaunchError(f"{expected}, {len(arguments)} arguments are given")
    pairs = zip(kernel.parameters, arguments, strict=True)
    return {parameter.name: _bytes(parameter, value, memory) for parameter, value in pairs}


def _bytes(parameter: Parameter, value: Any, memory: Memory) -> bytes:
    if isinstance(value, np.ndarray):
        value = memory.add(parameter.name, cast(Array, value))
    kind = DTYPES[parameter.type]
    if isinstance(value, int) and kind[0] != "f":
        value %= 1 << 8 * np.dtype(kind).itemsize
        return value.to_bytes(np.dtype(kind).itemsize, "little")
    return np.dtype(kind).type(value).tobytes()


def _three(sizes: Sequence[int] | int) -> tuple[int, int, int]:
    x, y, z = (*((sizes,) if isinstance(sizes, int) else sizes), 1, 1)[:3]
    return x, y, z


def _core(kernel: Kernel) -> int:
    match = re.match(r"sm_(\d+)", kernel.target)
    return int(match[1]) if match else 0
