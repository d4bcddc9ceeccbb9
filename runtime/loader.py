"""Loader: makes a Module callable. Its source is executed once, then bound to sizes.

Nothing is compiled for a new batch size: binding evaluates the buffers' sizes, packs them into the
arena and requests a step over views of it from the module. Bindings are cached, so that a known
size costs a look-up. One Executable runs one step at a time: its bindings share one arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.errors import CompileError, ParseError
from compiler.ir.types import Array
from compiler.pack import Lifetime
from compiler.plan import Tensor
from compiler.support.dataclass import dataclass
from compiler.support.free_memory import LARGE_BYTES, expect_memory
from runtime.binding import Shapes, checked_feed, fed, feed_bytes, fitting, sizes_of, unbound
from runtime.blas import elements, may_multiply, with_few_threads
from runtime.device import CPUPlace, CUDAPlace, Place, expect_target
from runtime.error_location import raise_step_error
from runtime.errors import TooLarge
from runtime.gpu.captures import CapturedLines, uncaptured
from runtime.gpu.copies import Copies, Fetch
from runtime.gpu.cuda import (
    DeviceArena,
    byte_range,
    current,
    current_stream,
    device_of,
    host_block,
    multiprocessors,
    separate_blocks,
)
from runtime.gpu.device_results import DeviceResult
from runtime.gpu.launches import Launcher
from runtime.gpu.mirrors import Mirrors
from runtime.gpu.streams import StreamOrder
from runtime.memory.allocator import reuse_freed_blocks
from runtime.memory.arena import Arena
from runtime.memory.arenas import GrowingBlock, Memory, Placement
from runtime.memory.limit import check_limit, check_machine
from runtime.memory.machine_memory import machine_memory
from runtime.memory.params import Params, state_arrays
from runtime.native.bounds import CheckedCode
from runtime.native.sequence import NativeCode
from runtime.prepared import PreparedArrays, StatefulCode
from runtime.source_lines import SourceLines
from runtime.state_use import StateUse
from runtime.taps import MARK
from runtime.tensors.scope import Arrays, Scope

DEFAULT_BINDINGS = 64
"""Default number of bindings cached by an Executable; the least recently used is dropped first.
One of a training step with 300 kernels takes 0.2 MB; those of other sizes share its arena."""

DEVICE_BINDINGS = 16
"""The same on a device, where each binding may have a captured graph."""

T = TypeVar("T")
Step: TypeAlias = Callable[..., tuple[Array, ...]]


@dataclass
class Counters:
    """Counts of programs compiled, sizes bound and steps run."""

    compiles: int = 0
    bindings: int = 0
    runs: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """Memory of the buffers at one set of sizes, in bytes.

    `arena` is the packed height, `bound` the most bytes alive at one step, a lower bound of any
    packing, and `sum_of_buffers` their total without sharing.
    """

    arena: int
    bound: int
    sum_of_buffers: int


@dataclass
class Binding:
    """A step over the arena and these arrays of the params, for one set of sizes.

    `token` is that of the params when the arrays were last checked; `prepared` are arrays made of
    params by native kernels, if the module has any that must follow changes; `own` are blocks of
    buffers that have memory of their own, by number.
    """

    sizes: Mapping[str, int]
    placement: Placement
    params: Mapping[str, Any]
    step: Step
    token: object
    prepared: PreparedArrays | None
    own: Mapping[int, GrowingBlock]


def load(
    module: Module,
    place: Place | None = None,
    params: Params | Scope | None = None,
    *,
    counters: Counters | None = None,
    keep: int | None = None,
    poison: bool = False,
    names: Mapping[str, Any] | None = None,
    memory_limit: int | None = None,
    device: str = "",
) -> Executable:
    """Make a module callable on a place, with its persistable state in `params` (or a scope).

    State that a step writes before it reads it is created in `params` if missing. `keep` bindings
    are cached, by default 64, or 16 on a device; `poison` fills the arena with 0xFF at every
    binding, to expose reads of uninitialised memory. `names` are extra globals of the source: the
    Python functions of `py_func`, a clock, the rings that its collectives use. `memory_limit` is
    the maximum number of bytes of a step, by default that of the module, or on a CPU the memory of
    the machine; binding sizes that need more raises MemoryLimitExceeded. `device` runs kernels that
    were compiled before, such as `ptx:80`, by default that of the place. Raises PlaceError if the
    place does not run the module's target and ParseError if the source defines no `bind`.
    """
    reuse_freed_blocks()
    where = place or CPUPlace()
    expect_target(module.target, where)
    state = params.arrays() if isinstance(params, Scope) else params
    if isinstance(state, Arrays):
        state = state.tracked()
    device = device or (device_of(where) if isinstance(where, CUDAPlace) else "")
    return Executable(
        module,
        {} if state is None else state,
        counters or Counters(),
        keep or (DEVICE_BINDINGS if device else DEFAULT_BINDINGS),
        [Arena(poison, host_block(device)), *([DeviceArena(device, poison)] if device else [])],
        names or {},
        device,
        module.memory_limit if memory_limit is None else memory_limit,
    )


class Executable:
    """A module with its params and its arena; created by `load`, called with feeds by name."""

    def __init__(
        self,
        module: Module,
        params: Params,
        counters: Counters,
        keep: int,
        arenas: Sequence[GrowingBlock],
        names: Mapping[str, Any],
        device: str = "",
        memory_limit: int | None = None,
    ) -> None:
        self.module = module
        self._memory_limit = memory_limit
        self.counters = counters
        self._params = params
        self._keep = keep
        self._arenas = arenas
        self._device = device
        self._mirrors = Mirrors(device)
        state = (params.clock.streams,) if isinstance(params, Arrays) else ()
        self._orders = (StreamOrder(), *state)
        self._filename = module.filename
        self._copies = Copies(device) if device.startswith("cuda") else None
        self._use = StateUse(module, params, self)
        self._native = self._stateful_code() if module.target == "native" else None
        self._is_timed = MARK in names
        own = {} if self._copies is None else {"copies": self._copy_functions(self._copies)}
        own |= {"multiprocessors": multiprocessors(device)} if device else {}
        self._bind = _bind_function(module, {**names, **own}, self._native)
        rings = names.get("collective") if module.collectives else None
        self._multiplies = may_multiply(module)
        self._enter = None if rings is None else partial(rings.enter, module.collectives)
        self._bindings: dict[Shapes, Binding] = {}
        self._latest: tuple[Shapes, Binding] | None = None
        self._is_state_static = not device and _has_fixed_shapes(module.params)
        self._memory = Memory(module.buffers, arenas, separate_blocks(device))
        for launcher in names.values():
            if isinstance(launcher, Launcher):
                for driver in launcher.drivers:
                    driver.watch(self._device_ranges)

    @property
    def nbytes(self) -> int:
        """The size of its arenas in bytes, as required by the largest sizes so far."""
        return sum(arena.nbytes for arena in self._arenas)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The values of the dynamic sizes at the last binding; empty before the first."""
        latest = next(reversed(self._bindings.values()), None)
        return {} if latest is None else latest.sizes

    def __call__(self, feed: Mapping[str, Array]) -> list[Array]:
        """Run one step; return copies of the fetched arrays in the order of `module.fetches`.

        Unknown names are ignored. Raises FeedError for a feed that is missing
        or has the wrong dtype, ShapeError for one of the wrong shape, and NotInitialized for params
        that do not exist yet.
        """
        return self.run([checked_feed(tensor, feed) for tensor in self.module.feeds])

    def run(self, feeds: Sequence[Array], on_device: bool = False) -> list[Array]:
        """Run one step on feeds in the order of `module.feeds`, with dtypes already checked.

        With `on_device`, results that a GPU copies to memory of the caller are DeviceResults.
        Raises StepError if an op cannot compute its outputs, and TooLarge if there is no memory for
        a value of data-dependent size.
        """
        if not self._device:  # host steps may take microseconds: no context is entered
            return self._run(self._step_for(feeds), feeds)
        if self._copies is not None:
            self._copies.keeps_results = on_device
        with current(self._device):
            self._follow()
            step = self._step_for(feeds)
            with self._mirrors:
                return self._run(step, feeds)

    def _follow(self) -> None:
        """Let this thread's stream wait for the work of the last step, which used the same memory.

        Binding copies to the device too.
        """
        stream = current_stream(self._device)
        for order in self._orders:
            order.follow(self._device, stream)

    def _step_for(self, feeds: Sequence[Array]) -> Step:
        return self._binding(tuple([array.shape for array in feeds])).step

    def _run(self, step: Step, feeds: Sequence[Array]) -> list[Array]:
        self.counters.runs += 1
        if self._enter is not None:
            self._enter()
        writer = self._use.writer
        if writer is not None:
            writer.begin()
        try:
            with np.errstate(all="ignore"):  # NaN and infinity are valid results
                return [_copy(value) for value in step(*feeds)]
        except Exception as error:
            raise_step_error(error, self._filename, self.module.source)
            raise
        finally:
            if writer is not None:
                writer.end()

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Bind to feeds of these shapes in advance, so that their first step is as fast as others.

        Raises FeedError for missing feeds, ShapeError, and NotInitialized for missing params.
        """
        with current(self._device):
            self._follow()
            self._binding(tuple([tuple(fed(tensor, shapes)) for tensor in self.module.feeds]))

    def lives(self, shapes: Mapping[str, Sequence[int]]) -> list[Lifetime]:
        """Return the lifetimes and bytes of the buffers for feeds of these shapes, in the module's
        order.

        Raises FeedError if one is missing and ShapeError if the shapes do not fit.
        """
        return buffer_lifetimes(self.module.buffers, self.sizes_for(shapes))

    def sizes_for(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return the values of the dynamic sizes for feeds of these shapes; raises as `lives`."""
        shapes_of_feeds = tuple(tuple(fed(tensor, shapes)) for tensor in self.module.feeds)
        return sizes_of(self.module, shapes_of_feeds)

    def memory(self, shapes: Mapping[str, Sequence[int]]) -> MemoryReport:
        """Report the memory of the buffers without allocating anything; raises as `lives`."""
        lives = self.lives(shapes)
        placement = self._memory.exact(lives)
        return MemoryReport(placement.height, placement.bound, sum(life.size for life in lives))

    def _binding(self, shapes: Shapes) -> Binding:
        """Return the binding for these shapes, most recently used, over the current params."""
        latest = self._latest
        if latest is not None and latest[0] == shapes and latest[1].token == self._token():
            if latest[1].prepared is not None:
                latest[1].prepared.refresh()
            return latest[1]
        binding = self._bindings.pop(shapes, None) or self._new_binding(shapes)
        if binding.token != self._token():
            self._renew(binding)
        if binding.prepared is not None:
            binding.prepared.refresh()
        self._bindings[shapes] = binding
        self._latest = shapes, binding
        return binding

    def _new_binding(self, shapes: Shapes) -> Binding:
        sizes = sizes_of(self.module, shapes)
        lives = fitting(buffer_lifetimes(self.module.buffers, sizes), sizes)
        placement = self._memory.find(lives, sizes)
        if self._memory_limit is not None:
            height = placement.height
            check_limit(self.module, self._memory_limit, sizes, lives, height, self._params)
        elif not self._device and (memory := machine_memory()) is not None:
            check_machine(self.module, memory, sizes, lives, placement.height)
        if self._memory.outgrown(placement):
            self._bindings.clear()  # their views would keep the old memory alive
            self._latest = None
        self._memory.reserve(placement)
        while len(self._bindings) >= self._keep:
            del self._bindings[next(iter(self._bindings))]
        if self._copies is not None:
            self._copies.reserve(feed_bytes(self.module, sizes))
        params = self._state(sizes)
        step, prepared, own = self._step(sizes, placement, params, lives)
        self.counters.bindings += 1
        return Binding(sizes, placement, params, step, self._token(), prepared, own)

    def _renew(self, binding: Binding) -> None:
        """Rebind to the current params; the offsets of the buffers are unchanged."""
        params = self._state(binding.sizes)
        prepared = binding.prepared
        if any(params[name] is not array for name, array in binding.params.items()) or (
            prepared is not None and not prepared.are_made_of(self._use.find)
        ):
            lives = buffer_lifetimes(self.module.buffers, binding.sizes)
            bound = self._step(binding.sizes, binding.placement, params, lives)
            binding.step, binding.prepared, binding.own = bound
            binding.params = params
        binding.token = self._token()

    def _state(self, sizes: Mapping[str, int]) -> Mapping[str, Any]:
        """Return the array of every param, or its device copy."""
        latest = self._latest
        if self._is_state_static and latest is not None and latest[1].token == self._token():
            return latest[1].params
        return self._new_state(sizes)

    def _new_state(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        params = self._params
        mine = [param for param in self.module.params if not param.on_device]
        state: dict[str, Any] = state_arrays(mine, params, sizes)
        theirs = [param for param in self.module.params if param.on_device]
        peeking = params.peeking() if isinstance(params, Arrays) else params
        state |= {n: self._device_copy(n) for n in state_arrays(theirs, peeking, sizes)}
        self._use.bind()
        return state

    def _device_ranges(self) -> list[tuple[str, int, int]]:
        """The name, address and bytes of the device's arena and of the state bound last."""
        binding = next(reversed(self._bindings.values()), None)
        blocks = [*self._arenas, *(binding.own.values() if binding is not None else ())]
        arena = [block.range for block in blocks if isinstance(block, DeviceArena)]
        state: Mapping[str, Any] = binding.params if binding is not None else {}
        mine = [param.name for param in self.module.params if param.on_device]
        return arena + [(name, *byte_range(state[name])) for name in mine if name in state]

    def _device_copy(self, name: str) -> Any:
        if isinstance(self._params, Arrays):
            return self._params.on_device(name, self._device)
        return self._mirrors.device_copy(name, self._params[name])

    def _step(
        self, sizes: Mapping[str, int], placement: Placement, params: Mapping[str, Any],
        lives: Sequence[Lifetime],
    ) -> tuple[Step, PreparedArrays | None, Mapping[int, GrowingBlock]]:  # fmt: skip
        dims, own = [sizes[name] for name in self.module.dims], dict[int, GrowingBlock]()
        take = self._memory.taker(placement, lives, own)
        make = partial(self._bind, take, params, *dims)
        try:
            native = self._native
            step, prepared = (make(), None) if native is None else native.bind(make, params)
            if not self._device and self._multiplies:
                step = with_few_threads(step, elements(self.module, sizes, params))
            return step, prepared, own
        except CompileError:
            raise
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise unbound(sizes, error) from error

    def _copy_functions(self, copies: Copies) -> tuple[Callable[..., Any], ...]:
        """The functions that a module calls in place of its own; `graph` is the last."""
        return *copies.functions, uncaptured if self._is_timed else partial(CapturedLines, copies)

    def _stateful_code(self) -> StatefulCode:
        """The native code of the module, with arrays prepared from the params."""
        kind = CheckedCode if self.module.checks_bounds else NativeCode
        code = kind(self.module.kernels_ir, self.module.machine, None, self.module.objects)
        return StatefulCode(code, self._use.find, self._use.clock, self.module.prepared)

    def _token(self) -> object:
        """A token that is equal as long as every array of the params is the same object."""
        if isinstance(self._params, Arrays):
            return self._params.generation
        return tuple([id(self._params.get(tensor.name)) for tensor in self.module.params])


def _has_fixed_shapes(tensors: Sequence[Tensor]) -> bool:
    """Whether no shape depends on the sizes of a batch."""
    return all(isinstance(size, int) for tensor in tensors for size in tensor.shape)


def _copy(value: Array | Fetch | DeviceResult | list[Array | None]) -> Any:
    """Copy a result, since the next step overwrites it; for a tensor array, copy each tensor.

    Items that were never written are None. A fetch is a copy already, which is waited for.
    """
    if isinstance(value, Fetch):
        return value.array()
    if isinstance(value, DeviceResult):
        return value
    if isinstance(value, list):
        return [None if array is None else array.copy() for array in value]
    return value.copy() if value.nbytes <= LARGE_BYTES else _large_copy(value)


def _large_copy(value: Array) -> Array:
    """Copy a result whose copy may exceed the free memory: raises TooLarge then."""
    try:
        expect_memory(value.shape, value.itemsize)
        return value.copy()
    except MemoryError as error:
        raise TooLarge(f"the copy of a fetched {value.dtype}: {error}") from error


def _bind_function(
    module: Module, names: Mapping[str, Any], native: StatefulCode | None
) -> Callable[..., Step]:
    """Execute the module's source in a new namespace; tracebacks show its lines."""
    lines = SourceLines(module.filename, module.source)
    names = names if native is None else {**names, "native": native}
    namespace: dict[str, Any] = {**names, "__name__": module.name, "__source_lines__": lines}
    exec(module.code, namespace)
    if not callable(namespace.get("bind")):
        raise ParseError(f"module {module.name!r} does not define the function bind")
    return cast("Callable[..., Step]", namespace["bind"])
