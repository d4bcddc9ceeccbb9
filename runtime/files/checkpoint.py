"""Reads and writes tensors in the reference's file format, so checkpoints are compatible both ways.

A record (spec G.2, little endian) is a LoD, a TensorDesc message and the raw row-major data; a
file holds one record, or many concatenated in the order of their names without an index. A file is
untrusted data: every size is checked against the rest of the file before memory is allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import SEEK_CUR, SEEK_END, BufferedIOBase
from itertools import pairwise
from pathlib import Path, PurePath
from reprlib import repr as short
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line
from compiler.support.limits import MAX_BYTES, MAX_RANK
from runtime.errors import CheckpointError, MissingTensorFile, OtherModel
from runtime.files.atomic_saves import Writer, save_files

Array: TypeAlias = NDArray[Any]
Lod: TypeAlias = tuple[tuple[int, ...], ...]
"""Levels of offsets, outermost first: two sequences of lengths 2 and 3 are ((0, 2, 5),)."""
Tensor: TypeAlias = tuple[Array, Lod]
SparseRows: TypeAlias = tuple[tuple[int, ...], int, Array]
"""Row numbers, the number of rows of the whole, and the values of the rows."""

DTYPES = {
    0: np.dtype("bool"),
    1: np.dtype("<i2"),
    2: np.dtype("<i4"),
    3: np.dtype("<i8"),
    4: np.dtype("<f2"),
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    20: np.dtype("u1"),
    21: np.dtype("i1"),
} | ({22: DType.BF16.numpy} if DType.BF16.is_in_numpy else {})
"""The dtypes of `VarType.Type` numbers: those of the reference, and bfloat16 of later releases."""

_CODES = {dtype: code for code, dtype in DTYPES.items()}
_KNOWN = ", ".join(f"{code} ({dtype.name})" for code, dtype in DTYPES.items())
_NO_LOD = 12  # bytes before the tensor in a record without LoD
_MAX_DESC = 128  # bytes; nine dims and the data type take 101 at most
_MAX_NAME = 255  # bytes of a file's name on the usual file systems
_DATA_TYPE_TAG, _DIMS_TAG = 0x08, 0x10


def write_tensor(stream: BufferedIOBase, array: Array, lod: Lod = (), name: str = "tensor") -> None:
    """Write one record as the reference's `save` op does; nothing is written on error.

    Raises CheckpointError, with `name`, for a dtype or rank that the format lacks and for a LoD
    that does not match the first dimension.
    """
    stream.write(_header_bytes(array, lod, name))
    stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    stream.write(stored.reshape(-1).view(np.uint8).data)


def read_tensor(stream: BufferedIOBase, name: str = "tensor") -> Tensor:
    """Read the array and LoD of the record at the position of a seekable `stream`.

    Raises CheckpointError, with `name`, if the data is truncated or not a record.
    """
    return _read_record(_source(stream, name))


def tensor_path(dirname: str | Path, name: str) -> Path:
    """Return the path of variable `name` under `dirname`; each '/' in it is a folder.

    Raises CheckpointError for a name that leads out of the folder or to another name's file, is
    too long for a file, or cannot be encoded in UTF-8.

    >>> tensor_path("model", "save_infer_model/scale_0").as_posix()
    'model/save_infer_model/scale_0'
    """
    path = PurePath(name)
    outside = path.anchor or ".." in path.parts or not path.parts
    reason = f"given the variable name {name!r:.200}; rename the variable"
    if outside or path.as_posix() != name or "\0" in name:
        raise CheckpointError(f"{dirname}: expected a plain path inside the folder, {reason}")
    if any(len(part.encode(errors="surrogatepass")) > _MAX_NAME for part in path.parts):
        most = f"at most {_MAX_NAME} bytes between slashes"
        raise CheckpointError(
            f"{dirname}: expected a file name of {most}, {reason} or save all variables in one file"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{dirname}: expected a name that has a form in UTF-8, {reason}"
        ) from error
    return Path(dirname, path)


def save_tensor(path: str | Path, array: Array, lod: Lod = ()) -> None:
    """Atomically write a file of one tensor, creating missing folders.

    An older file remains until the new one is complete. Raises CheckpointError as `write_tensor`
    does, and OSError.
    """
    place = Path(path)
    save_files(place.parent, {place.name: tensor_writer(str(path), array, lod)})


def load_tensor(path: str | Path) -> Tensor:
    """Load the array and LoD of a file of one tensor (the reference's `load` op).

    Raises FileNotFoundError, and CheckpointError if the file holds anything else.
    """
    with _opened(path) as source:
        tensor = _read_record(source)
        if source.left:
            source.refuse("the end of the file", f"{source.left} more bytes: is it combined?")
        return tensor


def save_rows(path: str | Path, rows: SparseRows) -> None:
    """Write a file of sparse rows, as the reference's `save` op does for SelectedRows.

    Atomic, and raises, as `save_tensor`.
    """
    place = Path(path)
    numbers, height, values = rows

    def write(stream: BufferedIOBase) -> None:
        header = _header_bytes(values, (), str(path))
        stream.write(struct.pack(f"<IQ{len(numbers)}qq", 0, len(numbers), *numbers, height))
        stream.write(header[_NO_LOD:])
        stream.write(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())

    save_files(place.parent, {place.name: write})


def load_rows(path: str | Path) -> SparseRows:
    """Load a file of sparse rows: their numbers, the number of rows of the whole, the values.

    Raises FileNotFoundError, and CheckpointError if the file holds anything else.
    """
    with _opened(path) as source:
        _expect_version_0(source, "rows")
        count = source.number("<Q", "the number of rows")
        numbers = struct.unpack(f"<{count}q", source.take(8 * count, "row numbers"))
        height = source.number("<q", "the height")
        values = _read_data(source, _read_type(source, ()))
        if source.left or values.shape[:1] != (count,) or not _are_rows(numbers, height):
            source.refuse(f"{count} rows of {height}", f"{list(numbers)[:8]}, {list(values.shape)}")
        return numbers, height, values


def _are_rows(numbers: Sequence[int], height: int) -> bool:
    return all(0 <= number < height for number in numbers)


def save_combined(path: str | Path, items: Mapping[str, Tensor]) -> None:
    """Write many tensors into one file, sorted by name (the reference's `save_combine` op).

    The names themselves are not written. Atomic, and raises, as `save_tensor`.
    """
    place = Path(path)
    save_files(place.parent, {place.name: combined_writer(items)})


def tensor_writer(name: str, array: Array, lod: Lod = ()) -> Writer:
    """Return a function that writes one record, for `save_files`; it raises as `write_tensor`
    does.
    """
    return lambda stream: write_tensor(stream, array, lod, name)


def combined_writer(items: Mapping[str, Tensor]) -> Writer:
    """Return a function that writes records in the order of their names, for `save_files`."""
    return records_writer([(name, items[name]) for name in sorted(items)])


def records_writer(items: Sequence[tuple[str, Tensor]]) -> Writer:
    """Return a function that writes records in the order passed in, for `save_files`."""

    def write(stream: BufferedIOBase) -> None:
        for name, tensor in items:
            write_tensor(stream, *tensor, name)

    return write


def load_combined(path: str | Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Load the tensors of a combined file by name; `names` are all the names it was saved with.

    Raises FileNotFoundError, and CheckpointError if the file holds fewer tensors or more.
    """
    wanted = sorted(set(names))
    return dict(zip(wanted, load_in_order(path, wanted), strict=True))


def load_in_order(path: str | Path, wanted: Sequence[str]) -> list[Tensor]:
    """Load all tensors of a combined file in file order, called `wanted` in errors; raises as
    above.
    """
    tensors: list[Tensor] = []
    with _opened(path) as source:
        for name in wanted:
            if not source.left:
                actual = f"{len(tensors)}: the file ends before {name!r}"
                source.refuse(f"{len(wanted)} tensors", actual, OtherModel)
            tensors.append(_read_record(replace(source, name=f"{path} ({name})")))
        if source.left:
            actual = f"{len(wanted) + _count_records(source)}: name all that were saved"
            source.refuse(f"{len(wanted)} tensors", actual, OtherModel)
    return tensors


# ---- reading ----


@dataclass(frozen=True, slots=True)
class _Source:
    """A stream with a name and a known end, which checks every size before trusting it."""

    stream: BufferedIOBase
    name: str
    end: int

    @property
    def left(self) -> int:
        return self.end - self.stream.tell()

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            self.refuse(f"{count} bytes of {what}", f"the {self.left} that are left")
        return self.stream.read(count)

    def number(self, layout: str, what: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))[0]

    def refuse(
        self, expected: str, given: str, error: type[CheckpointError] = CheckpointError
    ) -> NoReturn:
        where = f"{self.name}, byte {self.stream.tell()}"
        raise error(f"{where}: expected {expected}, given {given}")


@dataclass(frozen=True, slots=True)
class _Header:
    """The metadata of a record that precedes its data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    lod: Lod

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _source(stream: BufferedIOBase, name: str) -> _Source:
    position = stream.tell()
    end = stream.seek(0, SEEK_END)
    stream.seek(position)
    return _Source(stream, name, end)


def _beside(path: str | Path) -> str:
    """What the folder of a missing file has instead, for the end of a message."""
    folder, shown = Path(path).parent, 3
    if not folder.is_dir():
        return f"there is no folder {one_line(str(folder))}"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    listed = ", ".join(one_line(name) for name in names[:shown])
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    hint = "if one of them has all variables, give its name (params_filename, filename)"
    return f"its folder has {listed}{more}; {hint}" if names else "its folder has no files"


@contextmanager
def _opened(path: str | Path) -> Generator[_Source]:
    if not Path(path).is_file():
        raise MissingTensorFile(f"there is no tensor file {one_line(str(path))}: {_beside(path)}")
    with Path(path).open("rb") as stream:
        yield _source(stream, str(path))


def _read_record(source: _Source) -> Tensor:
    header = _read_header(source)
    return _read_data(source, header), header.lod


def _read_data(source: _Source, header: _Header) -> Array:
    array = np.empty(header.shape, header.dtype)
    raw = array.reshape(-1).view(np.uint8)
    if source.stream.readinto(raw.data) != header.nbytes:
        source.refuse(f"{header.nbytes} bytes of data", "a file that shrinks while it is read")
    if header.dtype == np.bool_ and raw.max(initial=0) > 1:
        source.refuse("bools of 0 or 1", f"{raw.max()}")
    return array


def _count_records(source: _Source) -> int:
    count = 0
    while source.left:
        source.stream.seek(_read_header(source).nbytes, SEEK_CUR)
        count += 1
    return count


def _read_header(source: _Source) -> _Header:
    _expect_version_0(source, "LoD")
    levels = source.number("<Q", "the number of LoD levels")
    return _read_type(source, tuple(_read_level(source) for _ in range(levels)))


def _read_type(source: _Source, lod: Lod) -> _Header:
    _expect_version_0(source, "tensor")
    dtype, shape = _read_desc(source)
    header = _Header(dtype, shape, lod)
    if fault := _lod_fault(lod, shape):
        source.refuse(fault, short(lod))
    if header.nbytes > source.left:
        data = f"{header.nbytes} bytes of data for {dtype.name}{list(shape)}"
        source.refuse(data, f"the {source.left} that are left")
    return header


def _expect_version_0(source: _Source, what: str) -> None:
    version = source.number("<I", f"the {what} version")
    if version:
        source.refuse(f"{what} version 0", f"{version}: is it a tensor file?")


def _read_level(source: _Source) -> tuple[int, ...]:
    size = source.number("<Q", "the size of a LoD level")
    if size == 0 or size % 8:
        source.refuse("a LoD level of 8 bytes an offset", f"{size} bytes")
    return struct.unpack(f"<{size // 8}Q", source.take(size, "LoD offsets"))


def _read_desc(source: _Source) -> tuple[np.dtype[Any], tuple[int, ...]]:
    size = source.number("<i", "the size of the TensorDesc")
    if not 0 <= size <= _MAX_DESC:
        source.refuse(f"a TensorDesc of at most {_MAX_DESC} bytes", f"{size}")
    raw = source.take(size, "the TensorDesc")
    numbers = _varints(raw)
    tags, values = numbers[::2], numbers[1::2]
    if len(tags) != len(values) or tags[:1] != [_DATA_TYPE_TAG] or {*tags[1:]} - {_DIMS_TAG}:
        source.refuse("a TensorDesc, data type then dims", raw.hex() or "nothing")
    if values[0] not in DTYPES:
        source.refuse(f"a data type of {_KNOWN}", f"{values[0]}, which later releases may write")
    if fault := _shape_fault(values[1:], DTYPES[values[0]].itemsize):
        source.refuse(fault, f"{values[1:]}")
    return DTYPES[values[0]], tuple(values[1:])


def _varints(raw: bytes) -> list[int]:
    """Decode `raw` as signed varints; an unfinished last one is ignored."""
    numbers: list[int] = []
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return numbers


# ---- writing ----


def _header_bytes(array: Array, lod: Lod, name: str) -> bytes:
    code = _CODES.get(array.dtype.newbyteorder("<"))
    if code is None:
        expected = ", ".join(dtype.name for dtype in _CODES)
        raise CheckpointError(f"{name}: expected one of {expected}, given {array.dtype}; cast it")
    if fault := _lod_fault(lod, array.shape):
        raise CheckpointError(f"{name}: expected {fault}, given {short(lod)}")
    if fault := _shape_fault(array.shape, array.itemsize):
        raise CheckpointError(f"{name}: expected {fault}, given {array.shape}; reshape it")
    numbers = [_DATA_TYPE_TAG, code, *(n for dim in array.shape for n in (_DIMS_TAG, dim))]
    desc = b"".join(map(_varint_bytes, numbers))
    levels = [struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level) for level in lod]
    start = struct.pack("<IQ", 0, len(lod)) + b"".join(levels)
    return start + struct.pack("<Ii", 0, len(desc)) + desc


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


# ---- what both sides hold a record to: each gives what was expected, or nothing ----


def _lod_fault(lod: Lod, shape: tuple[int, ...]) -> str:
    rows = shape[0] if shape else 0
    counts = [*(len(level) - 1 for level in lod[1:]), rows]
    for level, count in zip(lod, counts, strict=False):
        if not level or level[0] or any(after < before for before, after in pairwise(level)):
            return "LoD offsets that start at 0 and never fall"
        if level[-1] != count:
            return f"LoD offsets that end at {count}"
    return ""


def _shape_fault(shape: Sequence[int], itemsize: int) -> str:
    if len(shape) > MAX_RANK:
        return f"at most {MAX_RANK} dims"
    if any(dim < 0 for dim in shape):
        return "dims of 0 or more"
    if math.prod(max(dim, 1) for dim in shape) * itemsize > MAX_BYTES:
        return "dims whose product fits in 63 bits"
    return ""
