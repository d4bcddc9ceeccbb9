"""Where the files of data sets lie, and what to say if they do not; files for several readers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import IO, TypeAlias

from compiler.support.settings.paddle import PADDLE_DATASET_HOME

__all__ = ["DATA_HOME", "DatasetError", "cluster_files_reader", "download", "md5file", "split"]

DATA_HOME: str
"""The folder with a folder for each data set: PADDLE_DATASET_HOME, unless a script sets it."""


def __getattr__(name: str) -> str:
    if name == "DATA_HOME":
        return str(Path(PADDLE_DATASET_HOME.read()).expanduser())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Reader: TypeAlias = Callable[[], Iterator[object]]


class DatasetError(RuntimeError):
    """A file of a data set is missing or is not what it should be."""


def md5file(fname: str | os.PathLike[str]) -> str:
    """The MD5 checksum of a file in hexadecimal digits."""
    with Path(fname).open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Where the file of a URL lies in the cache folder: nothing is downloaded.

    The name is the last part of the URL, or `save_name`. Raises DatasetError if it is not there.
    """
    folder = globals().get("DATA_HOME") or __getattr__("DATA_HOME")
    path = Path(folder, module_name, save_name or url.rpartition("/")[2])
    if path.is_file():
        return str(path)
    raise DatasetError(
        f"the file {path.name} of the data set {module_name} is missing, and nothing is downloaded "
        f"here: get it from {url} (MD5 {md5sum}) and put it at {path}, or name the folder above "
        f"{module_name} by the environment variable PADDLE_DATASET_HOME"
    )


def split(
    reader: Reader,
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[list[object], IO[str]], object] = json.dump,
) -> None:
    """Write the samples of a reader to files of `line_count` samples each.

    `suffix` is the name of a file with a place for its number. The files are written as text, as
    release 1.8 opens them, by default as JSON: what is read again is never unpickled. Raises
    TypeError for a dumper that cannot be called.
    """
    _expect_callable(dumper, "dumper")
    samples = iter(reader())
    for number in count():
        part = list(islice(samples, line_count))
        if not part:
            return
        with Path(suffix % number).open("w", encoding="utf-8") as file:
            dumper(part, file)


def _expect_callable(value: object, name: str) -> None:
    if not callable(value):
        raise TypeError(f"{name} should be callable.")


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int,
    loader: Callable[[IO[str]], Iterable[object]] = json.load,
) -> Reader:
    """A reader of the samples in every `trainer_count`-th file of a pattern, from `trainer_id` on.

    The files are those of `split`, in the order of their names. Raises TypeError for a loader that
    cannot be called.
    """
    _expect_callable(loader, "loader")

    def samples() -> Iterator[object]:
        root = Path(files_pattern).anchor
        files = sorted(Path(root).glob(files_pattern.removeprefix(root)))
        for path in files[trainer_id::trainer_count]:
            with path.open(encoding="utf-8") as file:
                yield from loader(file)

    return samples
