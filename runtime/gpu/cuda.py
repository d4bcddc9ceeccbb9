"""CUDA device memory as torch tensors: an arena, and copies of host arrays.

With `TRITON_INTERPRET=1` kernels run in Triton's interpreter on host memory: then "device" is the
host, and memory is shared instead of copied. torch is imported on first use.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

from compiler.ir.types import Array, DType, is_floating
from compiler.support.extras import install, missing
from compiler.support.private_folders import is_private
from compiler.support.settings.fluid import FLUID_CHECK, FLUID_GPU
from compiler.support.settings.setting import export
from compiler.support.settings.systems import TRITON_CACHE_DIR, TRITON_HOME, TRITON_INTERPRET
from runtime.device import CUDAPlace
from runtime.errors import PlaceError, TooLarge
from runtime.gpu.capture_lock import CAPTURES
from runtime.gpu.drivers import ptx_machine

MACHINES = ("ptx:80", "ptx:90")
"""Devices of the PTX machine, by compute capability."""

SEPARATE_BUFFERS = False
"""True if each buffer on a device is an allocation of its own, for tools that check accesses."""


T = TypeVar("T")

ALIGN = 256
"""Alignment of torch allocations in bytes."""


def interprets() -> bool:
    """Whether kernels run in Triton's interpreter, on the host."""
    return TRITON_INTERPRET.read(error=PlaceError)


def machine() -> str:
    """The PTX machine that `FLUID_GPU` asks for, such as `ptx:80`; "" if kernels run on a GPU.

    Raises PlaceError for another value.
    """
    return FLUID_GPU.read(error=PlaceError) or ""


def is_checked(device: str) -> bool:
    """Whether kernels run on the PTX machine, which looks for hazards: with `FLUID_CHECK=1`."""
    return device in MACHINES and FLUID_CHECK.read() != "0"


def torch_device(device: str) -> str:
    """The device on which torch allocates: the host for the PTX machine, in separate memory."""
    return "cpu" if device in MACHINES else device


def device_of(place: CUDAPlace) -> str:
    """Return torch's name for the device of a place, or that of the PTX machine.

    Raises PlaceError if it does not exist.
    """
    torch = _torch(place)
    if wanted := machine():
        if place.device:
            raise PlaceError(f"{place} cannot be used: {wanted} is one device, CUDAPlace(0)")
        return wanted
    if interprets():
        return "cpu"
    if not torch.cuda.is_available():
        raise PlaceError(
            f"{place} cannot be used: torch {torch.__version__} finds no CUDA device",
            hint="set TRITON_INTERPRET=1 to run the kernels on the CPU, slowly, or use CPUPlace(): "
            "`fluid run --cpu`",
        )
    count = int(torch.cuda.device_count())
    if place.device >= count:
        raise PlaceError(f"{place} cannot be used: torch finds {count} CUDA devices, from 0 on")
    use_private_cache()
    return f"cuda:{place.device}"


@cache
def use_private_cache() -> None:
    """Use a private folder for Triton's cache if others can write to the default one.

    Triton executes the machine code that it finds in `TRITON_CACHE_DIR`, or in ~/.triton/cache.
    """
    home = Path(TRITON_HOME.read() or Path.home())
    folder = Path(TRITON_CACHE_DIR.read() or home / ".triton" / "cache")
    if not is_private(folder, TRITON_CACHE_DIR, by_path=True):
        own = mkdtemp(prefix="fluid-triton-")
        atexit.register(rmtree, own, ignore_errors=True)
        export({TRITON_CACHE_DIR.name: own})


def _torch(place: CUDAPlace) -> Any:
    if absent := missing("gpu"):
        raise PlaceError(
            f"{place} needs {' and '.join(absent)}, which cannot be imported",
            hint=f"{install('gpu')}, or use CPUPlace(): `fluid run --cpu`",
        )
    return import_module("torch")


def gpu_count() -> int:
    """The number of CUDA devices that torch finds; 0 without torch or triton."""
    if missing("gpu"):
        return 0
    if machine():
        return 1
    cuda = import_module("torch").cuda
    return int(cuda.device_count()) if cuda.is_available() else 0


def gpu_of(device: str) -> str:
    """The GPU architecture of a device, as `fluid compile` names it: `cuda:90`, `hip:gfx942`."""
    if device in MACHINES:
        return device.replace("ptx", "cuda")
    torch = import_module("torch")
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return f"hip:{properties.gcnArchName.partition(':')[0]}"
    return f"cuda:{properties.major}{properties.minor}"


def multiprocessors(device: str) -> int:
    """The multiprocessors of a device: kernels whose programs wait for each other have one on each.

    Triton's interpreter runs one program after the other; the PTX machine a few at once.
    """
    if device in MACHINES:
        return int(ptx_machine("library").MULTIPROCESSORS)
    if not device.startswith("cuda"):
        return 1
    properties = import_module("torch").cuda.get_device_properties(device)
    return int(properties.multi_processor_count)


def gpu_name(device: str) -> str:
    """The name of a GPU, such as `NVIDIA H200`."""
    return str(import_module("torch").cuda.get_device_name(device))


def microseconds(device: str, work: Callable[[], object]) -> float:
    """The microseconds that a device takes for work on this thread's current stream."""
    cuda = import_module("torch").cuda
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    stream = cuda.current_stream(device)
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000


def stream_of(device: str) -> Callable[[], int]:
    """Return a function that returns this thread's current stream on a device."""
    if device in MACHINES:
        return lambda: 0
    torch = import_module("torch")
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:  # a tenth of the time of a Stream object
        return partial(raw, torch.device(device).index or 0)
    return lambda: int(torch.cuda.current_stream(device).cuda_stream)


def current_stream(device: str) -> Any:
    """Return torch's current stream of this thread on a device; None for the host."""
    if not device.startswith("cuda"):
        return None
    return import_module("torch").cuda.current_stream(device)


def waiter(device: str) -> Callable[[], None] | None:
    """Return a function that waits for the work of this thread's current stream on a device.

    None if kernels have ended when their launch returns, as in the interpreter.
    """
    if not device.startswith("cuda"):
        return None
    return lambda: current_stream(device).synchronize()


def current(device: str) -> AbstractContextManager[object]:
    """A context manager in which kernels are launched on this device."""
    if not device.startswith("cuda"):
        return nullcontext()
    return import_module("torch").cuda.device(device)


def host_block(device: str) -> Callable[[int], Array] | None:
    """Return the allocator of the host arena of a device: page-locked memory.

    None if the device is the host.
    """
    if not device.startswith("cuda"):
        return None
    return lambda nbytes: _pinned(nbytes, device)


def pinned_memory(nbytes: int, device: str) -> Any:
    """Allocate a tensor of bytes in pinned memory. Raises TooLarge if there is too little."""
    torch = import_module("torch")
    make = partial(torch.empty, nbytes, dtype=torch.uint8, pin_memory=True)
    return allocate(make, f"the host's memory for copies, {nbytes} bytes", device)


def _pinned(nbytes: int, device: str) -> Array:
    buffer = pinned_memory(nbytes, device)
    array = buffer.numpy()
    finalize(array, CAPTURES.release, [buffer])  # captured steps copy to it
    return array


def allocate(make: Callable[[], T], what: str, device: str) -> T:
    """Call `make`, which allocates. Raises TooLarge, naming `what`, if there is too little memory.

    torch frees none of the memory in its cache while anything is captured: then it is tried again
    after that.
    """
    try:
        return make()
    except RuntimeError as error:
        _expect_out_of_memory(error)
        if not CAPTURES.is_mine:
            with suppress(import_module("torch").OutOfMemoryError), CAPTURES.exclusive():
                return make()
        raise TooLarge(f"{what}, does not fit in the free memory of {device}") from error


def _expect_out_of_memory(error: RuntimeError) -> None:
    """Raise an error again unless it is torch's or CUDA's for a lack of memory."""
    is_torch = isinstance(error, import_module("torch").OutOfMemoryError)
    if not is_torch and "out of memory" not in str(error):
        raise error


class DeviceArena:
    """A block of bytes on a device that grows and never shrinks, like `Arena` on the host."""

    def __init__(self, device: str, poison: bool = False) -> None:
        self._torch = import_module("torch")
        self._device = device
        self._allocates_on = torch_device(device)
        self._poison = poison
        self._bytes = self._empty(0)

    @property
    def nbytes(self) -> int:
        """The size of the block in bytes."""
        return int(self._bytes.numel())

    @property
    def range(self) -> tuple[str, int, int]:
        """Its name, address and bytes."""
        return "the arena", *byte_range(self._bytes)

    def reserve(self, nbytes: int) -> None:
        """Make the block at least this large. Raises TooLarge if the device is out of memory."""
        if nbytes > self.nbytes:
            if self._bytes.is_cuda:  # a step on this stream may still use the old block
                self._bytes.record_stream(current_stream(self._device))
            self._bytes = self._empty(0)  # releases the old block before allocating the new one
            self._bytes = self._empty(nbytes)
        if self._poison:
            self._bytes.fill_(0xFF)
        self._mark(self._bytes)

    def _empty(self, nbytes: int) -> Any:
        make = partial(
            self._torch.empty, nbytes, dtype=self._torch.uint8, device=self._allocates_on
        )
        return allocate(make, f"the memory of a step, {nbytes} bytes", self._device)

    def _mark(self, tensor: Any) -> Any:
        """Mark memory as unwritten, if the PTX machine looks for reads of it; return it."""
        if is_checked(self._device):
            ptx_machine("unwritten").mark(*byte_range(tensor))
        return tensor

    def take(
        self, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None
    ) -> Any:
        """Return a tensor over the bytes starting at `offset`. Raises ValueError if it would not
        fit.

        Strides are ignored: only host values have gaps.
        """
        assert strides is None, "device arrays cannot have strides"
        kind = getattr(self._torch, dtype)
        stop = offset + prod(shape) * kind.itemsize
        if offset < 0 or stop > self.nbytes:
            what = f"a tensor of shape {tuple(shape)} at byte {offset}"
            raise ValueError(f"{what} does not fit in {self.nbytes}")
        return self._bytes[offset:stop].view(kind).view(tuple(shape))

    def fresh(self, dtype: str, shape: Sequence[int]) -> Any:
        """Allocate a separate tensor."""
        kind = getattr(self._torch, dtype)
        make = partial(self._torch.empty, tuple(shape), dtype=kind, device=self._allocates_on)
        return self._mark(allocate(make, f"{dtype} of shape {tuple(shape)}", self._device))


def separate_blocks(device: str) -> Callable[[], DeviceArena] | None:
    """Return a function that makes a block per device buffer, if `SEPARATE_BUFFERS` is set.

    compute-sanitizer knows where an allocation ends, but not where a buffer of an arena does; and
    the checks of the PTX machine see reads of what nobody wrote if no other value was there before.
    """
    wanted = device and SEPARATE_BUFFERS
    return (lambda: DeviceArena(device)) if wanted or is_checked(device) else None


def byte_range(tensor: Any) -> tuple[int, int]:
    """The address of a tensor, and its bytes."""
    return int(tensor.data_ptr()), int(tensor.numel()) * int(tensor.element_size())


def tensor_over(array: Array) -> Any:
    """A tensor that shares an array's memory; torch does not accept NumPy's bfloat16 directly."""
    torch = import_module("torch")
    if is_floating(array.dtype) and array.dtype.kind != "f":  # bfloat16
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def bytes_of(tensor: Any) -> Any:
    """The bytes of a contiguous tensor, uint8[n]."""
    return tensor.view(-1).view(import_module("torch").uint8)


@cache
def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    name = str(dtype).removeprefix("torch.")
    return DType.of(name).numpy if name == "bfloat16" else np.dtype(name)


def numpy_dtype(tensor: Any) -> np.dtype[Any]:
    """NumPy's dtype of the elements of a tensor."""
    return _numpy_dtype(tensor.dtype)


# ---- streams, events and graphs


def new_stream(device: str) -> Any:
    """Return a stream of a device, besides those that torch makes current.

    torch has 32 streams and returns them in turn: that of captures is left out.
    """
    make = partial(import_module("torch").cuda.Stream, device)
    stream, taken = make(), capture_stream(device).cuda_stream
    return make() if stream.cuda_stream == taken else stream


@cache
def capture_stream(device: str) -> Any:
    """The stream of a device on which graphs are captured, one at a time."""
    return import_module("torch").cuda.Stream(device)


def on_stream(stream: Any) -> AbstractContextManager[object]:
    """A context manager in which a stream is current."""
    return import_module("torch").cuda.stream(stream)


def new_event(stream: Any = None) -> Any:
    """Return an event, recorded on a stream if there is one."""
    event = import_module("torch").cuda.Event()
    if stream is not None:
        event.record(stream)
    return event


def new_graph() -> Any:
    """Return an empty CUDA graph."""
    return import_module("torch").cuda.CUDAGraph()


def prepare_library(device: str) -> None:
    """Let torch allocate what this thread's calls of the vendor's library on this stream need."""
    with current(device):
        import_module("torch").cuda.current_blas_handle()


def library_product(form: str, rows: int, columns: int, inner: int, device: str) -> Any:
    """A function that multiplies two matrices of float16 by the vendor's library.

    `form` says how each lies in memory: N if rows are contiguous, T if columns are.
    """
    torch = import_module("torch")
    left, right = (
        torch.randn(sides[:: -1 if letter == "T" else 1], dtype=torch.float16, device=device)
        for letter, sides in zip(form, ((rows, inner), (inner, columns)), strict=True)
    )
    left, right = left.T if form[0] == "T" else left, right.T if form[1] == "T" else right
    out = torch.empty((rows, columns), dtype=torch.float16, device=device)
    return partial(torch.matmul, left, right, out=out)


def empty_like(tensor: Any, what: str, device: str) -> Any:
    """Allocate a tensor of another one's shape and dtype. Raises TooLarge, naming `what`, if the
    device is out of memory.
    """
    make = partial(import_module("torch").empty_like, tensor, device=torch_device(device))
    return allocate(make, what, device)


def staging_memory(nbytes: int, device: str) -> tuple[Any, Any]:
    """Allocate bytes of pinned memory, and as many on a device."""
    torch = import_module("torch")
    what = f"memory for copies to the device, {nbytes} bytes"
    make = partial(torch.empty, nbytes, dtype=torch.uint8, device=device)
    return pinned_memory(nbytes, device), allocate(make, what, device)
