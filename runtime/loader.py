"""Loader: makes a Module callable. Its source is executed once, then bound to sizes.

Nothing is compiled for a new batch size: binding evaluates the buffers' sizes, packs them into the
arena and requests a step over views of it from the module. Bindings are cached, so that a known
size costs a look-up. One Executable runs one step at a time: its bindings share one arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.errors import CompileError, ParseError, ShapeError, did_you_mean
from compiler.ir.dims import evaluate, solve
from compiler.ir.types import Array
from compiler.pack import Lifetime
from compiler.plan import Tensor
from runtime.blas import elements, with_few_threads
from runtime.device import CPUPlace, CUDAPlace, Place, expect_target
from runtime.error_location import raise_step_error
from runtime.errors import missing_feed, wrong_dtype, wrong_shape
from runtime.gpu.cuda import DeviceArena, Mirrors, current, device_of, host_block
from runtime.memory.arena import Arena
from runtime.memory.arenas import Block, Memory, Placement
from runtime.memory.limit import check_limit
from runtime.memory.params import Params, state_arrays
from runtime.source_lines import SourceLines
from runtime.tensors.scope import Arrays, Scope

DEFAULT_BINDINGS = 16
"""Default number of bindings cached by an Executable; the least recently used is dropped first."""

T = TypeVar("T")
Step: TypeAlias = Callable[..., tuple[Array, ...]]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


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

    `token` is that of the params when the arrays were last checked.
    """

    sizes: Mapping[str, int]
    placement: Placement
    params: Mapping[str, Any]
    step: Step
    token: object


def load(
    module: Module,
    place: Place | None = None,
    params: Params | Scope | None = None,
    *,
    counters: Counters | None = None,
    keep: int = DEFAULT_BINDINGS,
    poison: bool = False,
    names: Mapping[str, Any] | None = None,
    memory_limit: int | None = None,
) -> Executable:
    """Make a module callable on a place, with its persistable state in `params` (or a scope).

    State that a step writes before it reads it is created in `params` if missing. `keep` bindings
    are cached; `poison` fills the arena with 0xFF at every binding, to expose reads of
    uninitialised memory. `names` are extra globals of the source: the Python functions of
    `py_func`, a clock, the rings that its collectives use. `memory_limit` is the maximum number of
    bytes of a step, by default that of the module; binding sizes that need more raises
    MemoryLimitExceeded. Raises PlaceError if the place does not run the module's target and
    ParseError if the source defines no `bind`.
    """
    where = place or CPUPlace()
    expect_target(module.target, where)
    state = params.arrays() if isinstance(params, Scope) else params
    device = device_of(where) if isinstance(where, CUDAPlace) else ""
    return Executable(
        module,
        {} if state is None else state,
        counters or Counters(),
        keep,
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
        arenas: Sequence[Block],
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
        self._filename = module.filename
        self._bind = _bind_function(module, names)
        rings = names.get("collective") if module.collectives else None
        self._enter = None if rings is None else partial(rings.enter, module.collectives)
        self._bindings: dict[Shapes, Binding] = {}
        self._memory = Memory(module.buffers, arenas)

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
        return self.run([_checked(tensor, feed) for tensor in self.module.feeds])

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Run one step on feeds in the order of `module.feeds`, with dtypes already checked.

        Raises StepError if an op cannot compute its outputs, and TooLarge if there is no memory for
        a value of data-dependent size.
        """
        if not self._device:  # host steps may take microseconds: no context is entered
            return self._run(self._step_for(feeds), feeds)
        with current(self._device):
            step = self._step_for(feeds)
            with self._mirrors:
                return self._run(step, feeds)

    def _step_for(self, feeds: Sequence[Array]) -> Step:
        return self._binding(tuple([array.shape for array in feeds])).step

    def _run(self, step: Step, feeds: Sequence[Array]) -> list[Array]:
        self.counters.runs += 1
        if self._enter is not None:
            self._enter()
        try:
            with np.errstate(all="ignore"):  # NaN and infinity are valid results
                return [_copy(value) for value in step(*feeds)]
        except Exception as error:
            raise_step_error(error, self._filename, self.module.source)
            raise

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Bind to feeds of these shapes in advance, so that their first step is as fast as others.

        Raises FeedError for missing feeds, ShapeError, and NotInitialized for missing params.
        """
        with current(self._device):
            self._binding(tuple([tuple(_fed(tensor, shapes)) for tensor in self.module.feeds]))

    def lives(self, shapes: Mapping[str, Sequence[int]]) -> list[Lifetime]:
        """Return the lifetimes and bytes of the buffers for feeds of these shapes, in the module's
        order.

        Raises FeedError if one is missing and ShapeError if the shapes do not fit.
        """
        return buffer_lifetimes(self.module.buffers, self.sizes_for(shapes))

    def sizes_for(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Return the values of the dynamic sizes for feeds of these shapes; raises as `lives`."""
        given = tuple(tuple(_fed(tensor, shapes)) for tensor in self.module.feeds)
        return _sizes(self.module, given)

    def memory(self, shapes: Mapping[str, Sequence[int]]) -> MemoryReport:
        """Report the memory of the buffers without allocating anything; raises as `lives`."""
        lives = self.lives(shapes)
        placement = self._memory.exact(lives)
        return MemoryReport(placement.height, placement.bound, sum(life.size for life in lives))

    def _binding(self, shapes: Shapes) -> Binding:
        """Return the binding for these shapes, most recently used, over the current params."""
        binding = self._bindings.pop(shapes, None) or self._new_binding(shapes)
        if binding.token != self._token():
            self._renew(binding)
        self._bindings[shapes] = binding
        return binding

    def _new_binding(self, shapes: Shapes) -> Binding:
        sizes = _sizes(self.module, shapes)
        lives = _fitting(buffer_lifetimes(self.module.buffers, sizes), sizes)
        placement = self._memory.find(lives, sizes)
        if self._memory_limit is not None:
            height = placement.height
            check_limit(self.module, self._memory_limit, sizes, lives, height, self._params)
        if self._memory.outgrown(placement):
            self._bindings.clear()  # their views would keep the old memory alive
        self._memory.reserve(placement)
        while len(self._bindings) >= self._keep:
            del self._bindings[next(iter(self._bindings))]
        params = self._state(sizes)
        step = self._step(sizes, placement, params)
        self.counters.bindings += 1
        return Binding(sizes, placement, params, step, self._token())

    def _renew(self, binding: Binding) -> None:
        """Rebind to the current params; the offsets of the buffers are unchanged."""
        params = self._state(binding.sizes)
        if any(params[name] is not array for name, array in binding.params.items()):
            binding.step = self._step(binding.sizes, binding.placement, params)
            binding.params = params
        binding.token = self._token()

    def _state(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return the array of every param, or its device copy."""
        params = self._params
        mine = [each for each in self.module.params if not each.on_device]
        state: dict[str, Any] = state_arrays(mine, params, sizes)
        theirs = [each for each in self.module.params if each.on_device]
        peeking = params.peeking() if isinstance(params, Arrays) else params
        return state | {n: self._device_copy(n) for n in state_arrays(theirs, peeking, sizes)}

    def _device_copy(self, name: str) -> Any:
        if isinstance(self._params, Arrays):
            return self._params.on_device(name, self._device)
        return self._mirrors.device_copy(name, self._params[name])

    def _step(
        self, sizes: Mapping[str, int], placement: Placement, params: Mapping[str, Any]
    ) -> Step:
        dims = [sizes[name] for name in self.module.dims]
        try:
            step = self._bind(_taker(self.module, sizes, placement, self._memory), params, *dims)
            return (
                step
                if self._device
                else with_few_threads(step, elements(self.module, sizes, params))
            )
        except CompileError:
            raise
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise _misfit(sizes, str(error)) from error

    def _token(self) -> object:
        """A token that is equal as long as every array of the params is the same object."""
        if isinstance(self._params, Arrays):
            return self._params.generation
        return tuple([id(self._params.get(tensor.name)) for tensor in self.module.params])


def _copy(value: Array | list[Array]) -> Any:
    """Copy a result, since the next step overwrites it; for a tensor array, copy each tensor."""
    return [array.copy() for array in value] if isinstance(value, list) else value.copy()


def _bind_function(module: Module, names: Mapping[str, Any]) -> Callable[..., Step]:
    """Execute the module's source in a new namespace; tracebacks show its lines."""
    lines = SourceLines(module.filename, module.source)
    namespace: dict[str, Any] = {**names, "__name__": module.name, "__source_lines__": lines}
    exec(module.code, namespace)
    if not callable(namespace.get("bind")):
        raise ParseError(f"module {module.name!r} does not define the function bind")
    return cast("Callable[..., Step]", namespace["bind"])


# Feeds


def _fed(tensor: Tensor, given: Mapping[str, T]) -> T:
    """Return the entry of a feed; FeedError if it is missing."""
    if tensor.name not in given:
        hint = did_you_mean(tensor.name, given)
        raise missing_feed([(tensor.name, tensor.dtype, tensor.shape)], hint=hint)
    return given[tensor.name]


def _checked(tensor: Tensor, feed: Mapping[str, Array]) -> Array:
    """Return the array fed for a tensor, in row-major order."""
    array = np.asarray(_fed(tensor, feed), order="C")
    if array.dtype != tensor.dtype:
        raise wrong_dtype(tensor.name, tensor.dtype, str(array.dtype))
    return array


def check_shapes(module: Module, shapes: Mapping[str, Sequence[int]]) -> None:
    """Check that feeds of these shapes fit a module; nothing is allocated.

    Raises FeedError if one is missing, ShapeError if the sizes are inconsistent.
    """
    sizes = _sizes(module, tuple(tuple(_fed(tensor, shapes)) for tensor in module.feeds))
    _fitting(buffer_lifetimes(module.buffers, sizes), sizes)


def _sizes(module: Module, shapes: Shapes) -> dict[str, int]:
    """Solve for the dynamic sizes in the shapes of the feeds, from the actual shapes."""
    sizes: dict[str, int] = {}
    pairs = zip(module.feeds, shapes, strict=True)
    for tensor, given in sorted(pairs, key=lambda pair: _has_product(pair[0])):
        if len(given) != len(tensor.shape):
            raise wrong_shape(tensor.name, tensor.shape, given)
        known = dict(sizes)
        for size, number in zip(tensor.shape, given, strict=True):
            sizes |= solve(size, number, sizes)
            if evaluate(size, sizes) != number:
                raise wrong_shape(tensor.name, tensor.shape, given, _sizes_text(known))
    return sizes


def _has_product(tensor: Tensor) -> bool:
    """Whether a size is a product of names, whose values other tensors determine."""
    sizes = [size for size in tensor.shape if not isinstance(size, int)]
    return any(len(monomial) > 1 for size in sizes for monomial, _ in size.terms)


def _sizes_text(sizes: Mapping[str, int]) -> str:
    """The sizes that earlier feeds have fixed, as text for a hint."""
    return ", ".join(f"{name} is {size} in earlier feeds" for name, size in sizes.items())


def _fitting(lives: list[Lifetime], sizes: Mapping[str, int]) -> list[Lifetime]:
    """Return the lifetimes; ShapeError if a buffer has a negative size."""
    if any(life.size < 0 for life in lives):
        raise _misfit(sizes, "a size that follows from them is negative")
    return lives


def _misfit(sizes: Mapping[str, int], why: str) -> ShapeError:
    given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return ShapeError(f"the sizes of the feeds are inconsistent ({given}): {why}")


def _taker(
    module: Module, sizes: Mapping[str, int], placement: Placement, memory: Memory
) -> Callable[..., Any]:
    """Return the `take` of a module: an array over a buffer, by its number, or over part of it."""
    limits = [life.size for life in buffer_lifetimes(module.buffers, sizes)]

    def take(
        buffer: int | None,
        dtype: str,
        shape: Sequence[int],
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> Any:
        array = memory.take(placement, buffer, dtype, shape, offset, strides)
        taken = offset + _span(array, strides)
        if buffer is not None and taken > limits[buffer]:
            held, name = limits[buffer], module.buffers[buffer].name
            raise ValueError(f"buffer {name!r} holds {held} bytes, not the {taken} taken")
        return array

    return take


def _span(array: Any, strides: Sequence[int] | None) -> int:
    """The bytes from the start of an array to its end, including gaps."""
    if strides is None or not array.nbytes:
        return array.nbytes
    pairs = zip(array.shape, strides, strict=True)
    return sum((size - 1) * stride for size, stride in pairs) + array.itemsize
