"""The calls of libcuda that this project makes, with the machine as the GPU.

`Library` takes the place of the shared library in `runtime.gpu.drivers.Driver`. Modules are PTX
text. A launch may use the tensors that are its arguments, exactly, and what `watch` adds. Errors
are raised in the thread of the launch, with all that is known, instead of a number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.ptx.approximations import perturbed
from tools.ptx.counters import Counting
from tools.ptx.errors import LaunchError, PtxError
from tools.ptx.hazards import Hazards
from tools.ptx.launch import MOST_SHARED, USUAL_SHARED, kernels, launch
from tools.ptx.machine import Program
from tools.ptx.memory import Memory
from tools.ptx.order import Order

Ranges = Iterable[tuple[str, int, int]]
"""Names, addresses and sizes in bytes."""

MULTIPROCESSORS = 4
"""CTAs that run at once in a cooperative launch."""
INVALID_VALUE, INVALID_CONTEXT, NOT_FOUND, TOO_LARGE = 1, 201, 500, 720
_TEXTS = {
    INVALID_VALUE: b"invalid argument",
    INVALID_CONTEXT: b"invalid device context",
    NOT_FOUND: b"named symbol not found",
    TOO_LARGE: b"too many blocks in cooperative launch",
}
_MOST_SHARED_ATTRIBUTE = 8
_LARGEST_TABLE = 1 << 20
"""Bytes of the largest argument that may be a table of addresses."""


@dataclass
class Function:
    """A kernel that was found, and the shared memory that it may use."""

    program: Program
    allowed: int = USUAL_SHARED


@dataclass
class Launched:
    """A launch that was executed."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared: int


@dataclass
class Library:
    """A GPU of one compute capability, such as 80, without a GPU.

    `watch`, if not None, gives ranges of memory besides the arguments of a launch: those that
    kernels reach through tables of addresses. `launched` lists what ran. `counting`, if not None,
    counts what launches do, which makes them slower; `counted_as` are the kernels' names there.
    `hazards`, if not None, looks for those between threads; not while it counts. `order`, if not
    None, is the seed of the order of CTAs; `perturbs` changes approximate results within the errors
    that a GPU may have.
    """

    capability: int = 80
    watch: Callable[[], Ranges] | None = None
    counting: Counting | None = None
    hazards: Hazards | None = None
    order: int | None = None
    perturbs: bool = False
    counted_as: str = ""
    launched: list[Launched] = field(default_factory=list[Launched])
    _modules: list[Mapping[str, Program]] = field(default_factory=list[Mapping[str, Program]])
    _functions: list[Function] = field(default_factory=list[Function])
    _given: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    _context: int = 0

    @property
    def adds_by_atomics(self) -> bool:
        """Whether a kernel adds floating-point numbers by atomics, in the order of its threads."""
        atomics = (
            instruction
            for module in self._modules
            for program in module.values()
            for instruction in program.kernel.instructions
            if instruction.opcode in ("atom", "red") and instruction.has("add")
        )
        return any("f" in instruction.type for instruction in atomics)

    def announce(self, ranges: Ranges) -> None:
        """Let the next launch use these ranges."""
        self._given = list(ranges)

    def cuInit(self, flags: Any) -> int:
        """Nothing is to be started."""
        return 0

    def cuDeviceGet(self, place: Any, number: Any) -> int:
        """There is one device."""
        place.contents.value = number.value
        return 0 if number.value == 0 else INVALID_VALUE

    def cuDevicePrimaryCtxRetain(self, place: Any, device: Any) -> int:
        """The context has the number 1."""
        place.contents.value = 1
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        """Make the context current, which launches need."""
        self._context = context.value or 0
        return 0

    def cuModuleLoadData(self, place: Any, code: bytes) -> int:
        """Translate PTX text. Raises PtxError for machine code and for unknown PTX."""
        if code[:4] == b"\x7fELF":
            raise PtxError("machine code cannot be executed without a GPU: give its PTX")
        self._modules.append(kernels(code.rstrip(b"\0").decode("utf-8", "replace")))
        place.contents.value = len(self._modules)
        return 0

    def cuModuleGetFunction(self, place: Any, module: Any, name: bytes) -> int:
        """Find a kernel of a module."""
        program = self._modules[_index(module)].get(name.decode())
        if program is None:
            return NOT_FOUND
        self._functions.append(Function(perturbed(program) if self.perturbs else program))
        place.contents.value = len(self._functions)
        return 0

    def cuFuncSetAttribute(self, function: Any, number: Any, value: Any) -> int:
        """Opt in to more shared memory than 48 KiB."""
        most = MOST_SHARED.get(self.capability, USUAL_SHARED)
        if number.value != _MOST_SHARED_ATTRIBUTE or not 0 <= value.value <= most:
            return INVALID_VALUE
        self._functions[_index(function)].allowed = value.value
        return 0

    def cuLaunchKernel(self, function: Any, *sizes_stream_and_arguments: Any) -> int:
        """Execute a launch: sizes of grid and block, shared bytes, stream, arguments."""
        if not self._context:
            return INVALID_CONTEXT
        *sizes, shared, _, arguments, extra = sizes_stream_and_arguments
        if extra is not None:
            return INVALID_VALUE
        x, y, z, bx, by, bz = sizes
        loaded = self._functions[_index(function)]
        parameters, memory = _packed(loaded.program, arguments), self._memory()
        order = None if self.order is None else Order(self.order, len(self.launched))
        with self._observed(loaded.program, memory) as program:
            launch(
                program, (x, y, z), (bx, by, bz), shared, parameters, memory, loaded.allowed, order
            )
        self.launched.append(Launched(loaded.program.kernel.name, (x, y, z), bx * by * bz, shared))
        return 0

    def cuLaunchCooperativeKernel(self, function: Any, *sizes_stream_and_arguments: Any) -> int:
        """Execute a launch whose CTAs run at once, one on each multiprocessor."""
        x, y, z, *_ = sizes_stream_and_arguments
        if x * y * z > MULTIPROCESSORS:
            return TOO_LARGE
        return self.cuLaunchKernel(function, *sizes_stream_and_arguments, None)

    def cuGetErrorString(self, answer: int, place: Any) -> int:
        """The text of an error."""
        place.contents.value = _TEXTS.get(answer, b"unknown error")
        return 0

    def _observed(self, program: Program, memory: Memory) -> AbstractContextManager[Program]:
        """The program that is run: one that counts, or looks for hazards."""
        if self.counting is not None:
            return self.counting.launch(program, memory, self.counted_as)
        if self.hazards is not None:
            return self.hazards.launch(program, memory)
        return nullcontext(program)

    def _memory(self) -> Memory:
        memory = Memory()
        reached = list(self.watch()) if self.watch else []
        ranges = (*self._given, *reached) if _has_addresses(self._given, reached) else self._given
        for name, start, nbytes in ranges:
            memory.add_range(name, start, nbytes)
        self._given = []
        return memory


def _has_addresses(given: Ranges, reached: Ranges) -> bool:
    """Whether an argument is a table with an address within what may be reached."""
    tables = [span for span in given if span[2] % 8 == 0 and 0 < span[2] <= _LARGEST_TABLE]
    words = [np.frombuffer(ctypes.string_at(start, size), "u8") for _, start, size in tables]
    limits = [(start, start + size) for _, start, size in reached]
    return any(
        ((addresses >= low) & (addresses < high)).any()
        for addresses in words
        for low, high in limits
    )


def _index(handle: Any) -> int:
    """The place of a module or function in its list; handles count from 1."""
    return int(handle.value) - 1


def _packed(program: Program, places: Sequence[int]) -> dict[str, bytes]:
    """The bytes of each argument, read where the list says. LaunchError if it is too short."""
    wanted = program.kernel.parameters
    if len(places) != len(wanted):
        count = f"{program.kernel.name} has {len(wanted)} parameters"
        raise LaunchError(f"{count}, {len(places)} arguments are given")
    return {
        parameter.name: ctypes.string_at(place, parameter.nbytes)
        for parameter, place in zip(wanted, places, strict=True)
    }
