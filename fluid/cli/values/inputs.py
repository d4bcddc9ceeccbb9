"""Parsing of `--input` and `--lod`: feeds from arrays, text and images."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from compiler.errors import did_you_mean
from compiler.ir.types import Array
from compiler.report.table import count
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError, CompiledModel, SavedModel, shape_text
from fluid.cli.values.arrays import is_archive_or_array, read_arrays
from fluid.cli.values.declared_dtypes import as_declared
from fluid.cli.values.images import ENDINGS, ImageOptions, is_image_file, read_images
from fluid.cli.values.text import parse_numbers
from fluid.framework import Variable
from runtime.errors import LodError, missing_feed, wrong_shape
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["Feed", "expect_sequences", "lod_lengths", "read_feeds"]

Feed = Array | LoDTensor

_NUMERALS = frozenset("0123456789+-.eE ,;")


@dataclass(frozen=True)
class _Given:
    """One `--input`: the optional name before its `=`, and the value after it."""

    name: str | None
    value: str

    @property
    def path(self) -> Path:
        """The value as a path."""
        return Path(self.value)

    @property
    def is_file(self) -> bool:
        """Whether the value names an existing file."""
        return _exists(self.value) and self.path.is_file()

    @property
    def is_folder(self) -> bool:
        """Whether the value names an existing folder."""
        return _exists(self.value) and self.path.is_dir()


def _exists(name: str) -> bool:
    """Whether a file or folder of this name exists; a list of numbers may be too
    long for a name.
    """
    try:
        return bool(name) and Path(name).exists()
    except OSError:
        return False


def lod_lengths(text: str) -> tuple[str | None, list[list[int]]]:
    """Parse `--lod [NAME=]LENGTHS`; raises ArgumentTypeError for anything else.

    >>> lod_lengths("words=2,1/3,2,4")
    ('words', [[2, 1], [3, 2, 4]])
    """
    name, equals, lengths = text.rpartition("=")
    try:
        levels = [[int(number) for number in level.split(",")] for level in lengths.split("/")]
    except ValueError:
        form = "[NAME=]LENGTHS, like words=3,2,4 or words=2,1/3,2,4"
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}") from None
    return name if equals else None, levels


def read_feeds(
    model: SavedModel,
    inputs: Sequence[str],
    lods: Sequence[tuple[str | None, list[list[int]]]] = (),
    options: ImageOptions | None = None,
    limit: int | None = None,
) -> dict[str, Feed]:
    """The feeds of a model, in the model's order, from the values of `--input` and `--lod`.

    Arrays of another dtype than declared are converted, see `as_declared`. As in `Executor.run`,
    the declared shape is a hint: other arrays are fed as they are, and the ops decide. A package
    requires the shape that was declared. `limit` is the maximum number of bytes of the arrays of a
    `.npz`. Raises CommandError for unknown or repeated names, files that cannot be read and numbers
    that a feed cannot hold, FeedError for missing feeds, for a package ShapeError; OSError.
    """
    feeds: dict[str, Array | LoDTensor] = {}
    for argument, arrays in _read(model, [_split(text) for text in inputs], options, limit):
        for name, array in arrays.items():
            if name in feeds:
                raise CommandError(
                    f"feed {name!r} is passed twice, the second time by {argument.value}"
                )
            feeds[name] = array
    feed = _cut(model, feeds, lods)
    _expect_all(model, feed)
    if isinstance(model, CompiledModel):
        for var in model.feeds:
            _expect_as_declared(var, feed[var.name])
    return {var.name: feed[var.name] for var in model.feeds}


def expect_sequences(model: SavedModel, feed: Mapping[str, Feed]) -> None:
    """Raise CommandError for a feed that the model declares with LoD, but that has none.

    Called after a failed run, since many ops need no LoD.
    """
    for var in model.feeds:
        if var.lod_level and not isinstance(feed[var.name], LoDTensor):
            raise CommandError(
                f"feed {var.name!r} is sequences: pass their lengths with "
                f"--lod {var.name}=3,2,…, or a .npz with their offsets as {var.name}{LOD}0"
            )


def _split(text: str) -> _Given:
    """Split at the first `=`, unless the whole text is an existing file."""
    name, equals, value = text.partition("=")
    return _Given(name, value) if equals and not _exists(text) else _Given(None, text)


# ---- by kinds of files --------------------------------------------------------------------------


def _read(
    model: SavedModel,
    inputs: Sequence[_Given],
    options: ImageOptions | None,
    limit: int | None,
) -> Iterator[tuple[_Given, Mapping[str, Feed]]]:
    """The feeds of each input by name; all images for one feed form one batch."""
    images: dict[str, list[Path]] = {}
    for argument in inputs:
        if argument.is_folder or (argument.is_file and is_image_file(argument.path)):
            images.setdefault(_target(model, argument).name, []).extend(_image_files(argument.path))
        else:
            yield argument, _arrays(model, argument, limit)
    for name, paths in images.items():
        var = next(var for var in model.feeds if var.name == name)
        batch = read_images(paths, var, options or ImageOptions())
        yield _Given(name, str(paths[0])), {name: batch}


def _image_files(path: Path) -> list[Path]:
    """An image file, or the image files of a folder sorted by name."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if is_image_file(file))
    if not files:
        raise CommandError(f"{path} is a folder without images ({', '.join(ENDINGS)})")
    return files


def _arrays(model: SavedModel, given: _Given, limit: int | None) -> Mapping[str, Feed]:
    if not given.is_file or not is_archive_or_array(given.path):
        return _text(model, given)
    arrays = read_arrays(given.path, limit)
    if isinstance(arrays, dict):
        selected = _named(given, arrays)
        for name in selected:
            _expect_feed(model, name.partition(LOD)[0], given.value)
        return {name: _fed(model, name, array, given) for name, array in selected.items()}
    name = _target(model, given).name
    return {name: _fed(model, name, arrays, given)}


def _fed(model: SavedModel, name: str, array: Array, given: _Given) -> Array:
    """An array of a file as the feed of its name takes it; offsets as they are."""
    if LOD in name:
        return array
    var = next(var for var in model.feeds if var.name == name)
    return as_declared(array, var.element.numpy, name, given.value)


def _text(model: SavedModel, given: _Given) -> Mapping[str, Feed]:
    """Numbers from a file, from standard input for `-`, or from the command line itself."""
    if given.value == "-":
        text, where = sys.stdin.read(), "standard input"
    elif given.is_file:
        text, where = _decoded(given.path), given.value
    elif given.value.strip() and set(given.value) <= _NUMERALS:
        text, where = given.value.replace(";", "\n"), f"--input {given.value!r:.40}"
    elif not given.value:
        raise CommandError(f"--input {given.name}= names no file")
    else:
        raise CommandError(f"{given.value} does not exist or is not a file")
    var = _target(model, given)
    return {var.name: parse_numbers(text, var, where)}


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        kinds = "an array (.npy, .npz), an image, nor UTF-8 text"
        raise CommandError(f"{path} is neither {kinds}") from error


def _named(given: _Given, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """All arrays of an archive, or the named one with its LoD offsets."""
    if given.name is None:
        return arrays
    if given.name not in arrays:
        have = ", ".join(arrays) or "none"
        raise CommandError(f"{given.value} has no array {given.name!r}; it has {have}")
    return {name: array for name, array in arrays.items() if name.partition(LOD)[0] == given.name}


def _target(model: SavedModel, given: _Given) -> Variable:
    """The feed an input is for: the named one, or the only one."""
    names = [var.name for var in model.feeds]
    if given.name is None and len(names) != 1:
        hint = " ".join(f"--input {feed_name}={feed_name}.npy" for feed_name in names)
        raise CommandError(f"the model has {count(len(names), 'feed')}; name one: {hint}")
    name = given.name or names[0]
    _expect_feed(model, name, given.value)
    return model.feeds[names.index(name)]


def _expect_feed(model: SavedModel, name: str, where: str) -> None:
    names = [var.name for var in model.feeds]
    if name not in names:
        hint = did_you_mean(name, names) or f"it is fed {', '.join(names)}"
        if name.removeprefix("arr_").isdecimal():
            hint += f"; name the arrays in np.savez({where!r}, {names[0]}=…)"
        raise CommandError(f"{where}: the model has no feed {name!r}; {hint}")


# ---- sequences ----------------------------------------------------------------------------------


def _cut(
    model: SavedModel,
    found: Mapping[str, Feed],
    lods: Sequence[tuple[str | None, list[list[int]]]],
) -> dict[str, Feed]:
    """The feeds with LoD from offset arrays and `--lod`; the offset arrays
    themselves are removed.
    """
    feed = {name: value for name, value in found.items() if LOD not in name}
    for name, offsets in _offsets(found).items():
        feed[name] = _tensor(name, feed.get(name), offsets)
    for argument, lengths in lods:
        name = _target(model, _Given(argument, "--lod")).name
        levels = [list(accumulate(level, initial=0)) for level in lengths]
        feed[name] = _tensor(name, feed.get(name), levels)
    return feed


def _offsets(found: Mapping[str, Feed]) -> dict[str, list[list[int]]]:
    """The LoD levels of each feed whose offsets are passed as `NAME@LOD0`, `NAME@LOD1`, …"""
    levels: dict[str, list[list[int]]] = {}
    for name in sorted(name for name in found if LOD in name):
        array = found[name]
        if not isinstance(array, LoDTensor) and array.dtype.kind in "iu" and array.ndim == 1:
            levels.setdefault(name.partition(LOD)[0], []).append(array.tolist())
        else:
            raise CommandError(f"{name} must be LoD offsets: one axis of integers")
    return levels


def _tensor(name: str, value: Feed | None, offsets: list[list[int]]) -> LoDTensor:
    if value is None:
        raise CommandError(f"LoD of {name!r} is passed, but not {name!r} itself")
    tensor = LoDTensor(value.array if isinstance(value, LoDTensor) else value)
    try:
        tensor.set_lod(offsets)
    except LodError as error:
        raise CommandError(f"feed {name!r}: {error}") from error
    return tensor


# ---- whether they fit ---------------------------------------------------------------------------


def _expect_all(model: SavedModel, feed: Mapping[str, Feed]) -> None:
    missing = [var for var in model.feeds if var.name not in feed]
    if missing:
        needed = [(var.name, str(var.element.numpy), var.dims or ()) for var in missing]
        raise missing_feed(needed, hint=f"pass it with --input {missing[0].name}=FILE.npy")


def _expect_as_declared(var: Variable, value: Feed) -> None:
    """Raise ShapeError if the shape differs from the declared one."""
    array = value.array if isinstance(value, LoDTensor) else value
    assert array is not None
    if var.dims is not None:
        fits = all(want in (-1, size) for want, size in zip(var.dims, array.shape, strict=False))
        if len(var.dims) != array.ndim or not fits:
            hint = f"the package was compiled for {shape_text(var)}"
            raise wrong_shape(var.name, var.dims, array.shape, hint=hint)
