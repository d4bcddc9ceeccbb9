"""Arrays that kernels prepare from state, such as packed weights: computed when the state changed.

`bind` asks for them by `native.prepared`; the bindings of an Executable share those of equal
inputs, and all Executables of a module those of its constants. What is made of watched state is
computed again, in place, before the first step after the state changed. Where nobody would notice a
change, it is computed before every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from compiler.ir.types import Array
from compiler.support.shared_arrays import SharedArrays
from runtime.memory.arena import new_array
from runtime.tensors.contents import Clock

__all__ = ["PreparedArrays", "StatefulCode"]

T = TypeVar("T")


class SequenceCode(Protocol):
    """Native code: placeholders of feeds, and functions that run sequences of commands."""

    def feed(self, index: int, dtype: str) -> Any:
        """Return the placeholder of a feed."""
        ...

    def number(self, index: int) -> Any:
        """Return the placeholder of an integer among the feeds."""
        ...

    def call(self, kernel: str, arguments: Sequence[Any], units: int) -> None:
        """Run one kernel."""
        ...

    def repeat(self, count: int, commands: Sequence[Any]) -> None:
        """Run commands several times, with arguments that are known in the step only."""
        ...

    at: Callable[..., Any]
    columns: Callable[..., Any]
    indices: Callable[..., Any]
    offsets: Callable[..., Any]
    expect_at_most: Callable[..., None]
    most: Callable[..., Any]

    def __call__(self, commands: Sequence[Any]) -> Callable[..., None]:
        """Return the function that runs commands in order."""
        ...

    def timed(self, recorder: Callable[[Sequence[str], Sequence[float]], object]) -> SequenceCode:
        """Return the same code, whose sequences report the nanoseconds of each command."""
        ...


class WatchedState(Protocol):
    """State that is watched, such as a `LoDTensor` of a scope."""

    @property
    def version(self) -> int | None:
        """Differs after every change; None if there may be changes that nobody notices."""
        ...


Find = Callable[[str], "WatchedState | None"]
"""Returns the state of a name; None if nobody would notice its changes."""


class _Prepared:
    """One array, the function that computes it, and the state by name that it is made of."""

    def __init__(
        self, array: Array, compute: Callable[..., None], sources: dict[str, WatchedState | None],
        inputs: Sequence[Array],
    ) -> None:  # fmt: skip
        self.array = array
        self.sources = sources
        self._inputs = inputs  # kept, so that no other array has their address
        self._compute = compute
        self._versions: list[int | None] | None = None

    def refresh(self) -> bool:
        """Compute it unless it is up to date; False if changes of its state may go unnoticed."""
        versions = [None if source is None else source.version for source in self.sources.values()]
        if versions != self._versions or None in versions:
            self._versions = None  # while it is computed, and if that fails
            self._compute()
            self._versions = versions
        return None not in versions


class PreparedArrays:
    """The prepared arrays of one binding; `clock` is that of the state they are made of."""

    def __init__(self, arrays: Sequence[_Prepared], clock: Clock) -> None:
        self._arrays = arrays
        self._watching = [array for array in arrays if array.sources]
        self._clock = clock
        self._seen: int | None = None if self._watching else clock.contents
        self.is_watching = bool(self._watching)

    @property
    def nbytes(self) -> int:
        """Their size in bytes."""
        return sum(array.array.nbytes for array in self._arrays)

    def refresh(self) -> None:
        """Compute those that are not up to date."""
        if self._clock.contents == self._seen:
            return
        contents, self._seen = self._clock.contents, None
        steady = [prepared.refresh() for prepared in self._watching]
        self._seen = contents if all(steady) else None

    def are_made_of(self, find: Find) -> bool:
        """Whether the names of watched state still refer to the same state."""
        pairs = [pair for prepared in self._watching for pair in prepared.sources.items()]
        return all(find(name) is source for name, source in pairs)


class StatefulCode:
    """Native code as the module of one Executable calls it: with arrays prepared from state.

    `shared` are those prepared from constants by other Executables of the module.
    """

    def __init__(
        self, code: SequenceCode, find: Find, clock: Clock, shared: SharedArrays | None = None
    ) -> None:
        self.feed, self.number = code.feed, code.number
        self.call = code.call
        self.repeat, self.at = code.repeat, code.at
        self.columns, self.most = code.columns, code.most
        self.indices, self.offsets = code.indices, code.offsets
        self.expect_at_most = code.expect_at_most
        self._code = code
        self._find = find
        self._clock = clock
        self._shared = shared or SharedArrays()
        self._known: WeakValueDictionary[tuple[Any, ...], _Prepared] = WeakValueDictionary()
        self._bound: dict[_Prepared, None] = {}
        self._names: dict[int, str] = {}
        self._added: dict[str, Array] = {}

    def __call__(self, commands: Sequence[Any]) -> Callable[..., None]:
        """Return the function that runs commands in order."""
        return self._code(commands)

    def timed(
        self, commands: Sequence[Any], recorder: Callable[[Sequence[str], Sequence[float]], object]
    ) -> Callable[..., None]:
        """Return the function that runs commands, and reports the nanoseconds of each."""
        return self._code.timed(recorder)(commands)

    def bind(
        self, make: Callable[[], T], params: Mapping[str, Any] | None = None
    ) -> tuple[T, PreparedArrays]:
        """Return what `make` returns, and the arrays that it asked for; `params` is the state."""
        self._bound, self._added = {}, {}
        self._names = {id(array): name for name, array in (params or {}).items()}
        try:
            bound = make(), PreparedArrays([*self._bound], self._clock)
            self._shared.add(self._added)
            return bound
        finally:
            self._bound, self._added, self._names = {}, {}, {}

    def prepared(
        self, kernel: str, inputs: Sequence[Array], units: int, shape: Sequence[int], dtype: str,
        watched: Sequence[str] = (), sizes: Sequence[int] = (), site: object = None,
    ) -> Array:  # fmt: skip
        """The output of a kernel over constant arrays, or over those of the watched names.

        The kernel's arguments are the inputs, the output, which remains the same array, and sizes.
        That of constants is computed at once, others by `PreparedArrays.refresh`. Raises TooLarge
        if there is no memory for it. `site` is what an error of a kernel that checks bounds names.
        """
        sources = {name: self._find(name) for name in watched}
        places = [array.__array_interface__["data"][0] for array in inputs]
        how = (kernel, units, tuple(shape), dtype, tuple(sizes))
        key = (*how, *places, *watched, *map(id, sources.values()))
        entry = self._known.get(key)
        if entry is None:
            text = "" if watched else self._text(how, inputs)
            entry = self._shared_array(text, shape, dtype, inputs)
            if entry is None:
                self._shared.fill()
                out = new_array(f"what {kernel} prepares", tuple(shape), dtype)
                command = (kernel, (*inputs, out, *sizes), units)
                run = self._code([command if site is None else (*command, site)])
                entry = _Prepared(out, run, sources, inputs)
                self._compute_constant(entry, text, watched)
            self._known[key] = entry
        self._bound[entry] = None
        return entry.array

    def _text(self, how: tuple[Any, ...], inputs: Sequence[Array]) -> str:
        """Say how an array is made, by the names of its inputs; empty if some have none."""
        names = [self._names.get(id(array), "") for array in inputs]
        return repr((*how, *names)) if all(names) else ""

    def _shared_array(
        self, text: str, shape: Sequence[int], dtype: str, inputs: Sequence[Array]
    ) -> _Prepared | None:
        """The array that another Executable, or an earlier process, has made so."""
        array = self._shared.find(text)
        if array is None or array.shape != tuple(shape) or array.dtype != dtype:
            return None
        self._names[id(array)] = text
        return _Prepared(array, _nothing, {}, inputs)

    def _compute_constant(self, made: _Prepared, text: str, watched: Sequence[str]) -> None:
        """Compute an array at once, unless it is made of watched state."""
        if not watched:
            made.refresh()
        if text:
            self._names[id(made.array)] = text
            self._added[text] = made.array


def _nothing() -> None:
    """What computes an array that never changes."""
