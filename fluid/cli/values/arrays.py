"""Reading and writing `.npy` and `.npz` files for the command line.

Nothing is unpickled, and the header's size is checked against the file size before allocation.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from compiler.ir.types import Array
from fluid.cli.model import CommandError
from runtime.files.atomic_saves import save_files

_SUFFIX = ".npy"
_LONGEST = 65_000
"""Maximum length in bytes of a member name in an archive."""
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def is_archive_or_array(path: Path) -> bool:
    """Whether a file is a `.npy` or `.npz`, by its suffix or its first bytes."""
    if path.suffix in (".npz", _SUFFIX):
        return True
    with path.open("rb") as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX or zipfile.is_zipfile(path)


def read_arrays(path: Path) -> Array | dict[str, Array]:
    """Read the array of a `.npy` file, or the arrays of a `.npz` file by name.

    Raises CommandError for any other file, a truncated one, or one with Python objects; OSError.
    """
    try:
        if zipfile.is_zipfile(path):
            return _read_archive(path)
        with path.open("rb") as file:
            return _read_array(file, path.stat().st_size, str(path))
    except (zipfile.BadZipFile, EOFError) as error:
        raise CommandError(f"{path}: {error}") from error


def _read_archive(path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                name = info.filename.removesuffix(_SUFFIX)
                arrays[name] = _read_array(member, info.file_size, f"{path}: {info.filename}")
    return arrays


def _read_array(file: IO[bytes], held: int, where: str) -> Array:
    """Read the array in a stream of `held` bytes, which must not be less than its
    header declares.
    """
    try:
        version = npy.read_magic(file)
        shape, fortran, dtype = _READERS[version](file)
    except (ValueError, KeyError) as error:
        raise CommandError(f"{where} is not an array file of np.save") from error
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if dtype.hasobject:
        raise CommandError(f"{where} holds Python objects, which are not read: save numbers")
    if min(shape, default=1) < 0 or nbytes > held:
        raise CommandError(f"{where} declares {nbytes} bytes, but is {held} bytes long")
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise CommandError(f"{where} ends after {len(data)} of {nbytes} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a `.npz` of arrays by name, or a `.npy` of a single array; the write is atomic.

    Raises CommandError for another suffix, for several arrays in a `.npy`, and for an invalid
    member name (see `member_name`); OSError.
    """
    expect_output(path, len(arrays))
    save_files(path.parent, {path.name: lambda file: _write(file, path.suffix, arrays)})


def _write(file: IO[bytes], suffix: str, arrays: Mapping[str, Array]) -> None:
    if suffix == _SUFFIX:
        npy.write_array(file, next(iter(arrays.values())), allow_pickle=False)
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


def _write_archive(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(member_name(name)), "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)


def expect_output(path: Path, number: int) -> None:
    """Raise CommandError where `number` arrays cannot be written to a file of this name."""
    if path.suffix not in (".npz", _SUFFIX):
        raise CommandError(f"{path} must end in .npz, or in .npy for one array")
    if path.suffix == _SUFFIX and number != 1:
        raise CommandError(f"{path} holds one array, but there are {number}: write a .npz")
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is not there: make the folder first")


def brief(array: Array, numbers: int = 6) -> str:
    """The first numbers of an array, on one line.

    >>> brief(np.arange(10) / 4)
    '0 0.25 0.5 0.75 1 1.25 …'
    """
    shown: list[Any] = array.reshape(-1)[:numbers].tolist()
    more = " …" if array.size > numbers else ""
    return " ".join(f"{value:.4g}" for value in shown) + more
