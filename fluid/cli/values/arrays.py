"""Reading and writing `.npy` and `.npz` files for the command line.

Nothing is unpickled, and the header's size is checked against the file size before allocation.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BufferedIOBase, BytesIO
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import IO, cast

import numpy as np
from numpy.lib import format as npy

from compiler.ir.types import Array
from fluid.cli.model import CommandError
from fluid.cli.values.archives import DAMAGED, members
from runtime.files.atomic_saves import save_files

_SUFFIX = ".npy"
_LONGEST = 65_000
"""Maximum length in bytes of a member name in an archive."""
_HEADER_BYTES = 10_000
"""Maximum length of a header that NumPy reads without being told to trust it."""
_READERS = {(1, 0): (npy.read_array_header_1_0, 2), (2, 0): (npy.read_array_header_2_0, 4)}
"""The functions that read headers, and the bytes of the length before one."""


def is_archive_or_array(path: Path) -> bool:
    """Whether a file is a `.npy` or `.npz`, by its suffix or its first bytes."""
    if path.suffix in (".npz", _SUFFIX):
        return True
    with path.open("rb") as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX or zipfile.is_zipfile(path)


def read_arrays(path: Path, limit: int | None = None) -> Array | dict[str, Array]:
    """Read the array of a `.npy` file, or the arrays of a `.npz` file by name.

    `limit` is the maximum number of bytes of an archive's arrays; see `members`. Raises
    CommandError for any other file, a truncated one, one with Python objects, and an archive that
    declares more than the limit or what it cannot have; OSError.
    """
    try:
        if zipfile.is_zipfile(path):
            return {
                name: _read_array(member, info.file_size, f"{path}: {info.filename}")
                for name, info, member in members(path, _SUFFIX, limit)
            }
        with path.open("rb") as file:
            return _read_array(file, path.stat().st_size, str(path))
    except DAMAGED as error:
        raise CommandError(f"{path}: {error}") from error


def _read_array(file: IO[bytes], held: int, where: str) -> Array:
    """Read the array in a stream of `held` bytes, which must not be less than its
    header declares.
    """
    try:
        shape, fortran, dtype = _header(file)
    except (ValueError, KeyError, TokenError) as error:
        raise CommandError(f"{where} is not an array file of np.save") from error
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if dtype.hasobject:
        raise CommandError(f"{where} holds Python objects, which are not read: save numbers")
    if min(shape, default=1) < 0 or nbytes > held:
        raise CommandError(f"{where} declares {nbytes} bytes, but is {held} bytes long")
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise CommandError(f"{where} ends after {len(data)} of {nbytes} bytes")
    try:
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # sizes beside a 0 that no array has, or too many of them
        raise CommandError(f"{where} declares the shape {shape!s:.200}: {error}") from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Read the shape, whether the order is Fortran's, and the dtype. NumPy reads a header of up to
    4 GiB before it refuses one that is too long. Raises ValueError, KeyError or TokenError for
    another file.
    """
    read, width = _READERS[npy.read_magic(file)]
    length = file.read(width)
    if int.from_bytes(length, "little") > _HEADER_BYTES:
        raise ValueError("a header that long is not one of NumPy's")
    return read(BytesIO(length + file.read(int.from_bytes(length, "little"))))


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a `.npz` of arrays by name, or a `.npy` of a single array; the write is atomic.

    Raises CommandError for another suffix, for several arrays in a `.npy`, and for an invalid
    member name (see `member_name`); OSError.
    """
    expect_output(path, len(arrays))
    save_files(path.parent, {path.name: lambda file: _write(file, path.suffix, arrays)})


def _write(file: BufferedIOBase, suffix: str, arrays: Mapping[str, Array]) -> None:
    if suffix == _SUFFIX:
        npy.write_array(cast(IO[bytes], file), next(iter(arrays.values())), allow_pickle=False)
    else:
        _write_archive(file, arrays)


def member_name(name: str) -> str:
    """The member name of an array in an archive; raises CommandError for an invalid name.

    Unpacking must neither write outside the target folder nor merge two arrays into one file.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts
    unwritable = "\0" in name or any("\ud800" <= c <= "\udfff" for c in name)
    if outside or unwritable or len(name.encode(errors="replace")) > _LONGEST:
        raise CommandError(
            f"no array of a .npz can be called {name!r:.200}: leave it out, or rename the variable"
        )
    return name + _SUFFIX


def _write_archive(file: BufferedIOBase, arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(cast(IO[bytes], file), "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(member_name(name)), "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)


def expect_output(path: Path, number: int) -> None:
    """Raise CommandError where `number` arrays cannot be written to a file of this name."""
    if path.suffix not in (".npz", _SUFFIX):
        raise CommandError(f"{path} must end in .npz, or in .npy for one array")
    if path.suffix == _SUFFIX and number != 1:
        raise CommandError(f"{path} holds one array, but there are {number}: write a .npz")
    expect_folder(path)


def expect_folder(path: Path) -> None:
    """Raise CommandError where the folder of a file to write does not exist."""
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is not there: make the folder first")


def brief(array: Array, numbers: int = 6) -> str:
    """The first numbers of an array, on one line.

    >>> brief(np.arange(10) / 4)
    '0 0.25 0.5 0.75 1 1.25 …'
    """
    shown = array.reshape(-1)[:numbers].tolist()
    more = " …" if array.size > numbers else ""
    return " ".join(f"{value:.4g}" for value in shown) + more
