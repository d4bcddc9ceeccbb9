"""LoDTensor: an array in host memory with LoD, the offsets of its sequences.

A batch of sequences of different lengths is one array, and its LoD has the start of each: lengths
[[2, 3]] or offsets [[0, 2, 5]]. A bound step keeps views of a tensor's array, so the array remains
the same object as long as shape and dtype are unchanged; a `Clock` counts replacements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import index
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from compiler.errors import CompileError
from compiler.ir.types import Array, DType, VarTypeId
from runtime.device import CPUPlace, Place, expect_place
from runtime.errors import LodError
from runtime.gpu.device_results import DeviceResult
from runtime.gpu.mirrors import Mirror
from runtime.tensors.contents import Clock, TensorWriter, next_version
from runtime.tensors.printing import tensor_text

Lod = list[list[int]]


class LoDTensor:
    """Elements and the offsets of the sequences among them (fluid 1.8.5 `LoDTensor`).

    Empty until `set`. An array passed to the constructor is not copied; a list is the lengths of
    sequences, level by level. A result on a device stays there until it is read.
    """

    def __init__(
        self,
        array: Array | DeviceResult | Sequence[Sequence[int]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._array = array if isinstance(array, np.ndarray) else None
        self._result = array if isinstance(array, DeviceResult) else None
        self._lod: Lod = []
        if isinstance(array, list | tuple):
            self._lod = [list(accumulate(map(int, level), initial=0)) for level in array]
        self._offsets: tuple[Lod, int | None, tuple[Array, ...]] | None = None
        self._clock = clock
        self._mirror: Mirror | None = None
        self._take: Callable[[], Array] | None = (
            None if self._result is None else self._result.array
        )
        self._dims: tuple[int, ...] | None = None
        self._last_write = 0
        self._writers: tuple[TensorWriter, ...] = ()
        self._is_exposed = True
        self._is_result_shared = False

    @staticmethod
    def cut(array: Array | DeviceResult, lod: Sequence[Array]) -> LoDTensor:
        """Create a tensor with offsets that a step computed, without checking them."""
        tensor = LoDTensor(array)
        tensor._lod = [level.tolist() for level in lod]
        return tensor

    @property
    def array(self) -> Array | None:
        """The storage itself, updated from its device copy; None while empty.

        It is exposed from then on (`runtime.tensors.contents`): code that only reads calls `read`.
        """
        array = self.read()  # which may get it from a device or a process
        self.expose()
        self._take = None  # the host's elements count from now on, which the caller may write
        return array

    def read(self) -> Array | None:
        """Return the storage itself to a caller that neither writes into it nor passes it on."""
        self._read_back()
        if self._mirror is not None and self._mirror.pull():
            self.note_write()
            if self._clock is not None:
                self._clock.tick()  # holders of the array may write into it
        return self._array

    def peek(self) -> Array | None:
        """The storage as it is, which may be older than its device copy."""
        self._read_back()
        return self._array

    @property
    def is_offloaded(self) -> bool:
        """Whether another process or a device has the elements, which were not read since."""
        return self._take is not None

    def offload(self, take: Callable[[], Array]) -> None:
        """Free the storage: another process holds the elements, and `take` returns a copy of them.

        The first read of the tensor gets that copy, which is the storage from then on.
        """
        self._array, self._mirror, self._take = None, None, take
        if self._clock is not None:
            self._clock.tick()

    def _read_back(self) -> None:
        if self._take is not None:
            self._array = self._take()
            if not self._is_result_shared:
                self._take = None
            self._is_exposed = False
            result = self._result
            self.note_write()
            self._result = result  # which has the same elements
            if self._clock is not None:
                self._clock.tick()

    def on_device(self, device: str) -> Any:
        """The copy of the array on a device, by torch's name: a tensor that steps write into.

        It remains the same tensor as long as the array does. ValueError while empty.
        """
        self._read_back()
        if self._array is None:
            raise CompileError("an empty LoDTensor has no device copy: call set first")
        mirror = self._mirror
        if mirror is None or mirror.array is not self._array or mirror.device != device:
            array = cast(Array, self.read())
            self._mirror = mirror = Mirror(array, device, self._clock and self._clock.streams)
        if mirror.push() and self._clock is not None:
            self._clock.tick()  # holders of the array must request it again
        return mirror.tensor

    def set(self, array: object, place: Place) -> None:
        """Copy values in, in place if shape and dtype are unchanged; the LoD is kept.

        A uint16 array holds the bits of float16 numbers, as in release 1.8.5.
        Raises TypeError for unsupported dtypes, or if `place` is not a place.
        """
        expect_place(place)
        values = _as_elements(np.asarray(array))
        _expect_elements(values)
        if self._fits(values):
            np.copyto(cast(Array, self.read()), values)
            self.note_write()
            if self._clock is not None:
                self._clock.written += 1
        else:
            self.adopt(np.array(values, order="C"), is_own=True)

    def _fits(self, values: Array) -> bool:
        mine = self._array  # elements of another process or a device are replaced, not read
        return (
            self._take is None
            and mine is not None
            and mine.shape == values.shape
            and mine.dtype == values.dtype
        )

    def adopt(self, array: Array, *, is_own: bool = False) -> None:
        """Make this array the storage, without copying it; with `is_own` nobody else has it."""
        self._array, self._mirror, self._take = array, None, None
        self._is_exposed = not is_own
        self.note_write()
        if self._clock is not None:
            self._clock.tick()
            self._clock.written += 1

    def _clear(self) -> None:
        """Free the elements; the tensor is empty then."""
        self._array, self._mirror, self._take, self._dims = None, None, None, None
        if self._clock is not None:
            self._clock.tick()

    def shape(self) -> list[int]:
        """The shape; [0] while empty, as in the reference."""
        if self._result is not None:
            return list(self._result.shape)
        self._read_back()
        return [0] if self._array is None else list(self._array.shape)

    @property
    def element(self) -> DType:
        """The element type; CompileError while empty."""
        self._read_back()
        if self._array is None:
            raise CompileError("an empty LoDTensor has no element type: call set first")
        return DType.of(self._array.dtype)

    def _dtype(self) -> VarTypeId:
        """The dtype as numbered in files; CompileError while empty."""
        return VarTypeId(self.element.code)

    def is_initialized(self) -> bool:
        """Whether anything was set."""
        return self._array is not None or self.is_offloaded

    _is_initialized = is_initialized

    def lod(self) -> Lod:
        """The offsets of each level, outermost first; [] without LoD."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the offsets. Raises LodError if they do not cover the first axis."""
        levels = _levels(lod)
        self._expect_valid(levels, f"offsets {levels}")
        self._lod = levels

    def recursive_sequence_lengths(self) -> Lod:
        """The lengths of the sequences of each level."""
        return [[stop - start for start, stop in pairwise(level)] for level in self._lod]

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths. Raises LodError if they do not sum to the first axis."""
        levels_of_lengths = _levels(lengths)
        levels = [list(accumulate(level, initial=0)) for level in levels_of_lengths]
        self._expect_valid(levels, f"sequence lengths {levels_of_lengths}")
        self._lod = levels

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether the LoD still covers the first axis: `set` may have changed its size."""
        return _covers(self._lod, self._rows())

    def offsets(self) -> tuple[Array, ...] | None:
        """The offsets of each level, int64 [count + 1], which may not be written.

        None if they do not cover the rows. They are made once for a LoD.
        """
        rows, cached = self._rows(), self._offsets
        if cached is None or cached[0] is not self._lod or cached[1] != rows:
            if not _covers(self._lod, rows):
                return None
            arrays = tuple(np.array(level, np.int64) for level in self._lod)
            for array in arrays:
                array.flags.writeable = False
            cached = self._offsets = self._lod, rows, arrays
        return cached[2]

    def _rows(self) -> int | None:
        if self._result is not None:
            return (self._result.shape or (0,))[0]
        self._read_back()
        return None if self._array is None else (self._array.shape or (0,))[0]

    def _expect_valid(self, levels: Lod, given: str) -> None:
        if not _covers(levels, self._rows()):
            raise LodError(
                f"{given} do not fit a LoDTensor of shape {tuple(self.shape())}",
                hint="the innermost level covers the first axis, and each level the one inside it",
            )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """The values, copied unless `copy=False`: the next step may overwrite the storage."""
        self._read_back()
        if copy is False:
            self.expose()
        values = np.empty(0) if self._array is None else self.read()
        return np.array(values, dtype=dtype, copy=copy is not False)

    def __dlpack__(self, **options: Any) -> Any:
        """Share the elements: those of a result in device memory, otherwise those of the host."""
        return self._shared().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the elements that `__dlpack__` shares."""
        return self._shared().__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """The elements in device memory; AttributeError if they are on the host."""
        if self._result is None:
            raise AttributeError("the elements of this LoDTensor are in host memory")
        return self._shared().__cuda_array_interface__

    def _shared(self) -> Any:
        """The elements, which others may write; those on a device are read at each use by the host,
        until it writes its own.
        """
        if self._result is None:
            values = self._values()
            self.expose()
            return values
        self._array, self._take = None, self._result.array
        self._is_result_shared = True
        return self._result.tensor

    def __repr__(self) -> str:
        self._read_back()
        if self._array is None:
            return "LoDTensor(empty)"
        return f"LoDTensor({self._array.dtype}{self.shape()}, lod={self._lod})"

    def __str__(self) -> str:
        array = self.read()
        return repr(self) if array is None else tensor_text(array, self._lod)

    def _copy(self, place: object) -> LoDTensor:
        """Return a deep copy of elements and LoD; `place` is ignored."""
        array = self.read()
        copied = LoDTensor(None if array is None else np.array(array))
        copied.set_lod(self._lod)
        return copied

    # ---- versions of the elements (runtime/tensors/contents.py)

    @property
    def version(self) -> int | None:
        """Differs after every write; None if there may be writes that nobody notices."""
        if self._is_exposed:
            return None
        latest = self._last_write
        for writer in self._writers:
            if writer.latest is None:
                return None
            if writer.latest > latest:
                latest = writer.latest
        return latest

    def expose(self) -> None:
        """Record that code outside has the storage, and may write into it at any time."""
        if not self._is_exposed:
            self._is_exposed = True
            self.note_write()

    def note_write(self) -> None:
        """Record that elements were written."""
        self._result = None
        self._last_write = next_version()
        if self._clock is not None:
            self._clock.contents = next_version()

    def written_by(self, writer: TensorWriter) -> None:
        """Record that a writer writes the elements whenever it begins to write."""
        if writer in self._writers:
            return
        live = [candidate for candidate in self._writers if not candidate.is_gone]
        if len(live) < len(self._writers):
            self.note_write()
        self._writers = (*live, writer)

    # ---- access to elements, as in release 1.8.5

    def __getitem__(self, key: Any) -> LoDTensor:
        """Copy a slice, keeping the rank: an index counts as a slice of size 1.

        Raises IndexError for an index that is out of range.
        """
        keys = cast("tuple[Any, ...]", key if isinstance(key, tuple) else (key,))
        values = self._values()
        slices = tuple(map(_as_slice, keys, values.shape[: len(keys)]))
        part = LoDTensor()
        part.adopt(np.array(values[slices], order="C"), is_own=True)
        return part

    def _values(self) -> Array:
        if (array := self.read()) is None:
            raise ValueError("the tensor is empty: call set first")
        return array

    # Dims and memory

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Set the dims; memory for them is allocated by `_alloc_*` or `_mutable_data`."""
        self._dims = tuple(map(int, dims))

    def _get_dims(self) -> list[int]:
        """The dims that were set, or the actual ones."""
        return self.shape() if self._dims is None else list(self._dims)

    def _alloc_int(self, place: Place) -> None:
        """Allocate zeros of int32."""
        self._allocate("int32")

    def _alloc_float(self, place: Place) -> None:
        """Allocate zeros of float32."""
        self._allocate("float32")

    def _alloc_double(self, place: Place) -> None:
        """Allocate zeros of float64."""
        self._allocate("float64")

    def _mutable_data(self, place: Place, dtype: Any) -> int:
        """Allocate zeros of a `VarType` dtype; return the address of the first element."""
        self._allocate(DType.of(int(dtype)).numpy)
        self.expose()
        return int(self._values().ctypes.data)

    def _allocate(self, dtype: DTypeLike) -> None:
        self.adopt(np.zeros(self._get_dims(), dtype), is_own=True)
        self._dims = None

    def _share_data_with(self, other: LoDTensor) -> None:
        """Share the memory of another tensor."""
        values = other._values()
        other.expose()
        self.adopt(values)

    def _place(self) -> Place:
        """The place of its elements."""
        return CPUPlace()

    def _to_dlpack(self) -> object:
        """A copy of the elements as a DLPack capsule; CompileError while empty."""
        return self._values().copy().__dlpack__()

    # Single elements, by flat index

    def _get_float_element(self, offset: int) -> float:
        """Return one element."""
        return float(self._values().flat[offset])

    def _set_float_element(self, offset: int, value: float) -> None:
        """Set one element."""
        self._values().flat[offset] = value
        self.note_write()

    _get_double_element = _get_float_element
    _set_double_element = _set_float_element


def _levels(given: Sequence[Sequence[int]]) -> Lod:
    """Convert lengths or offsets to lists; TypeError if they are not lists of integers."""
    try:
        return [[index(number) for number in level] for level in given]
    except TypeError:
        raise TypeError(
            "the lengths or offsets of sequences are a list of levels, each a list of whole "
            f"numbers, not {given!r:.60}"
        ) from None


def _as_elements(values: Array) -> Array:
    """View uint16 values as float16; return others unchanged."""
    return values.view(np.float16) if values.dtype == np.uint16 else values


def _expect_elements(values: Array) -> None:
    try:
        DType.of(values.dtype)
    except TypeError as error:
        error.add_note("  hint: pass a NumPy array, for example np.array(values, dtype='float32')")
        raise


def _covers(levels: Lod, rows: int | None) -> bool:
    """Whether each level rises from 0 and ends where the next inner one, or the data, ends."""
    sizes = [len(level) - 1 for level in levels[1:]] + ([] if rows is None else [rows])
    rising = all(len(level) > 1 and level[0] == 0 for level in levels)
    steps = chain.from_iterable(map(pairwise, levels))
    ends = zip(levels, sizes, strict=False)
    return rising and all(a <= b for a, b in steps) and all(lod[-1] == size for lod, size in ends)


def _as_slice(key: Any, size: int) -> Any:
    """Convert an index to a slice; IndexError if it is out of range."""
    if isinstance(key, slice):
        return cast(Any, key)
    number: int = range(size)[index(key)]
    return slice(number, number + 1)


def create_lod_tensor(
    data: LoDTensor | Array | list[Any], recursive_seq_lens: Sequence[Sequence[int]], place: Place
) -> LoDTensor:
    """Create a LoDTensor from values and sequence lengths.

    An array or LoDTensor is copied; a list holds one list per sequence, whose elements become rows
    of one number each. Raises LodError if the lengths do not fit and TypeError for other data.

    >>> from runtime.device import CPUPlace
    >>> create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]], CPUPlace())
    LoDTensor(int64[5, 1], lod=[[0, 2, 5]])
    """
    if isinstance(data, list):
        return create_lod_tensor(_joined(data, recursive_seq_lens), recursive_seq_lens, place)
    if not isinstance(cast(object, data), LoDTensor | np.ndarray):
        raise TypeError(f"data is a LoDTensor, a NumPy array or a list, not {type(data).__name__}")
    tensor = LoDTensor()
    tensor.set(data, place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def _joined(sequences: list[Any], lengths: Sequence[Sequence[int]]) -> Array:
    """Concatenate the elements of all sequences, with a last axis of size 1."""
    if not all(hasattr(sequence, "__len__") for sequence in sequences):
        raise TypeError(f"data in a list has a list for each sequence, not {sequences!r:.60}")
    actual = [len(sequence) for sequence in sequences]
    declared = _levels(lengths)
    if declared != [actual]:
        raise LodError(
            f"the data has sequences of the lengths {[actual]}, but {declared} were given"
        )
    return np.array(list(chain.from_iterable(sequences)))[..., np.newaxis]


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: Sequence[int],
    place: Place,
    low: int,
    high: int,
) -> LoDTensor:
    """Create a LoDTensor of random int64 from `low` to `high`, both inclusive.

    The first axis is the total length of all sequences, the others are `base_shape`. Draws from
    NumPy's global generator, as the reference does.
    """
    levels = _levels(recursive_seq_lens)
    if not levels or low > high or min(base_shape, default=1) < 0:
        raise ValueError(
            "a random LoDTensor needs lengths, sizes that are not negative and low <= high, but "
            f"received {levels}, {list(base_shape)}, {low} and {high}"
        )
    shape = (sum(levels[-1]), *base_shape)
    values = np.random.randint(low, high + 1, shape, dtype=np.int64)
    return create_lod_tensor(values, recursive_seq_lens, place)
