"""GPU drivers: load machine code and launch kernels, without compiling anything.

The same six calls are used of CUDA and HIP, under different names. Memory and streams are torch's,
which uses the primary context of a device; code is loaded into the same context.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.support.dataclass import dataclass
from compiler.support.lazy_loading import load
from runtime.errors import PlaceError
from runtime.loaded_libraries import loaded_libraries

USUAL_SHARED = 48 << 10
"""Bytes of shared memory per block that CUDA allows without opting in."""

_MAX_SHARED = 8
"""The function attribute that opts in to more (MAX_DYNAMIC_SHARED_SIZE_BYTES)."""

_NO_CONTEXT = (201, 400)
"""Driver error codes in a thread without a context, or with that of another device."""


@dataclass(frozen=True)
class Calls:
    """The names of the driver calls of one vendor."""

    library: str
    load: str
    find: str
    launch: str
    launch_together: str
    error: str


CALLS = {
    "cuda": Calls(
        "libcuda.so.1", "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel",
        "cuLaunchCooperativeKernel", "cuGetErrorString",
    ),
    "hip": Calls(
        "libamdhip64.so", "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel",
        "hipModuleLaunchCooperativeKernel", "hipGetErrorString",
    ),
}  # fmt: skip

Announce = Callable[[Iterable[tuple[str, int, int]]], None]
"""Takes names, addresses and sizes in bytes."""

_CHECKOUT = Path(__file__).parents[2]
"""The folder of this package, where a checkout also has `tools`."""

_LAUNCH = [ctypes.c_void_p, *(ctypes.c_uint,) * 7, *(ctypes.c_void_p,) * 3]
"""Types of the arguments of a launch; a cooperative one lacks the last."""


class Driver:
    """The driver of one device, by its index. Raises PlaceError if its library is missing.

    `library` replaces the shared library, in tests and by the PTX machine. `announce`, if not None,
    gets the name, address and bytes of the tensors of the next launch.
    """

    def __init__(self, maker: str, device: int, library: Any = None) -> None:
        self.maker = maker
        self._calls = CALLS[maker]
        self._device = device
        self._library = library or _opened(self._calls)
        self._context = ctypes.c_void_p()
        self._launcher = getattr(self._library, self._calls.launch)
        self._cooperative = getattr(self._library, self._calls.launch_together)
        self.announce: Announce | None = getattr(self._library, "announce", None)
        self._enter()

    def watch(self, ranges: Callable[[], Iterable[tuple[str, int, int]]]) -> None:
        """Tell the PTX machine which memory tables of addresses may reach; a GPU knows it."""
        if self.announce is not None:
            self._library.watch = ranges

    def load(self, code: bytes, entry: str, shared: int) -> Any:
        """Load a function of machine code; PlaceError if the driver rejects it."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._do(self._calls.load, ctypes.pointer(module), code)
        self._do(self._calls.find, ctypes.pointer(function), module, entry.encode())
        if shared > USUAL_SHARED and self.maker == "cuda":
            wanted = ctypes.c_int(shared)
            self._do("cuFuncSetAttribute", function, ctypes.c_int(_MAX_SHARED), wanted)
        return function

    def launch(
        self,
        function: Any,
        grid: Sequence[int],
        threads: int,
        shared: int,
        stream: int,
        given: Any,
        together: bool = False,
    ) -> None:
        """Launch a function over a grid of programs; `given` are the addresses of its arguments.

        All programs run at once if they run `together`, which fails if there are too many.
        """
        x, y, z = (*grid, 1, 1)[:3]
        arguments = (x, y, z, threads, 1, 1, shared, stream, given)
        call, name = self._launcher, self._calls.launch
        if together:
            call, name = self._cooperative, self._calls.launch_together
        else:
            arguments += (None,)
        answer = call(function, *arguments)
        if answer in _NO_CONTEXT:
            self._enter()
            answer = call(function, *arguments)
        if answer:
            raise PlaceError(f"{name} failed: {self._error_text(answer)}")

    def _enter(self) -> None:
        """Make the device's context current in this thread."""
        if self.maker == "hip":
            self._do("hipSetDevice", ctypes.c_int(self._device))
            return
        if not self._context:
            self._do("cuInit", ctypes.c_uint(0))
            device = ctypes.c_int()
            self._do("cuDeviceGet", ctypes.pointer(device), ctypes.c_int(self._device))
            self._do("cuDevicePrimaryCtxRetain", ctypes.pointer(self._context), device)
        self._do("cuCtxSetCurrent", self._context)

    def _do(self, name: str, *arguments: Any) -> None:
        answer = getattr(self._library, name)(*arguments)
        if answer:
            raise PlaceError(f"{name} failed: {self._error_text(answer)}")

    def _error_text(self, answer: int) -> str:
        """The driver's text for an error code."""
        call = getattr(self._library, self._calls.error)
        if self.maker == "hip":
            return f"{call(answer).decode()} ({answer})"
        text = ctypes.c_char_p()
        call(answer, ctypes.pointer(text))
        return f"{(text.value or b'unknown error').decode()} ({answer})"


def ptx_machine(module: str) -> Any:
    """Import a module of the PTX machine, which executes kernels without a GPU (docs/ptx.md).

    The machine is a tool of a checkout, `tools/ptx`, and not part of installed packages. Raises
    PlaceError if it cannot be imported.
    """
    if (_CHECKOUT / "tools" / "ptx").is_dir() and str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))
    try:
        return load(partial(import_module, f"tools.ptx.{module}"))
    except ModuleNotFoundError as error:
        if error.name not in ("tools", "tools.ptx"):
            raise
        raise PlaceError(
            "the PTX machine is not installed: it is tools/ptx of the source repository",
            hint="set PYTHONPATH to a checkout of the repository",
        ) from error


def _opened(calls: Calls) -> Any:
    """Open the shared library, the same copy that torch uses if it bundles one."""
    try:
        library = ctypes.CDLL(next(iter(loaded_libraries(calls.library)), calls.library))
    except OSError as error:
        raise PlaceError(f"{calls.library} cannot be opened: is a GPU driver installed?") from error
    getattr(library, calls.launch).argtypes = _LAUNCH
    getattr(library, calls.launch_together).argtypes = _LAUNCH[:-1]
    if calls is CALLS["hip"]:
        getattr(library, calls.error).restype = ctypes.c_char_p
    return library
