"""`fluid infer`: arrays from files through a saved model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

import compiler
import runtime
from compiler.errors import did_you_mean
from compiler.ir.types import Array
from fluid.cli.arrays import brief, expect_output, read_arrays, write_arrays
from fluid.cli.model import CommandError, SavedModel, load_model, shape_text
from fluid.cli.table import count, table
from fluid.framework import Variable
from runtime.errors import missing_feed, wrong_dtype, wrong_shape

ROWS = 10
"""Rows whose likeliest class is shown."""

REPEATS, PATIENCE = 50, 1.0
"""Runs that `--time` makes at most, and seconds after which it begins no other."""


def infer(given: argparse.Namespace) -> int:
    """Feed a model, print its outputs briefly, write them where asked."""
    started = time.perf_counter()
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    if given.output:
        expect_output(given.output, len(model.fetches))
    feed = check_feed(model, read_inputs(model, given.input))
    loaded = time.perf_counter()
    executable = load_executable(model, feed)
    outputs = dict(zip(model.fetch_names, executable(feed), strict=True))
    finished = time.perf_counter()
    print(_shown(feed, outputs))
    print(
        f"\nloaded in {_ms(loaded - started)}, compiled and first run in {_ms(finished - loaded)}"
    )
    if given.time:
        print(_timed(executable, feed))
    if given.output:
        write_arrays(given.output, outputs)
        print(f"written to {given.output}: {', '.join(outputs)}")
    return 0


def load_executable(model: SavedModel, feed: Mapping[str, Array]) -> runtime.Executable:
    """The model compiled for feeds of these shapes; trained batch norms are folded."""
    params = dict(model.params)
    module = compiler.compile(model.program, feed=feed, fetch=model.fetch_names, params=params)
    return runtime.load(module, runtime.CPUPlace(), params)


# ---- what is fed --------------------------------------------------------------------------------


def read_inputs(model: SavedModel, inputs: Sequence[str]) -> dict[str, Array]:
    """The arrays of `--input` by the names of feeds.

    Each is `x.npz` with such names, `name=x.npy`, or `x.npy` for the only feed. Raises
    CommandError for a name the model is not fed or is given twice, and what reading raises.
    """
    found: dict[str, Array] = {}
    for text in inputs:
        for name, array in _read_input(model, text).items():
            if name in found:
                raise CommandError(f"feed {name!r} is given twice: by {text} and before")
            found[name] = array
    return found


def _read_input(model: SavedModel, text: str) -> dict[str, Array]:
    names = [var.name for var in model.feeds]
    name, file = _split(text)
    if not Path(file).is_file():
        raise CommandError(f"{file} is not there, or is no file")
    arrays = read_arrays(Path(file))
    if isinstance(arrays, dict):
        arrays = _named(name, arrays, file)
    elif name is None and len(names) != 1:
        hint = " ".join(f"--input {each}={each}.npy" for each in names)
        raise CommandError(f"the model has {count(len(names), 'feed')}; say which: {hint}")
    else:
        arrays = {name or names[0]: arrays}
    for each in arrays:
        if each not in names:
            hint = did_you_mean(each, names) or f"it is fed {', '.join(names)}"
            raise CommandError(f"{file}: the model has no feed {each!r}; {hint}")
    return arrays


def _split(text: str) -> tuple[str | None, str]:
    """The name before the first `=`, if there is one, and the file; a file may have = in it."""
    name, equals, file = text.partition("=")
    return (name, file) if equals and not Path(text).is_file() else (None, text)


def _named(name: str | None, arrays: Mapping[str, Array], file: str) -> dict[str, Array]:
    if name is None:
        return dict(arrays)
    if name not in arrays:
        raise CommandError(f"{file} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
    return {name: arrays[name]}


def check_feed(model: SavedModel, feed: Mapping[str, Array]) -> dict[str, Array]:
    """The feeds in the model's order; FeedError or ShapeError says what is missing or does not fit.

    Nothing is converted: an array of another element type is refused.
    """
    missing = [var for var in model.feeds if var.name not in feed]
    if missing:
        needed = [(var.name, str(var.element.numpy), var.dims or ()) for var in missing]
        raise missing_feed(needed, hint=f"give it: --input {missing[0].name}=FILE.npy")
    for var in model.feeds:
        _expect_fit(var, feed[var.name])
    return {var.name: feed[var.name] for var in model.feeds}


def _expect_fit(var: Variable, array: Array) -> None:
    if array.dtype != var.element.numpy:
        raise wrong_dtype(var.name, str(var.element.numpy), str(array.dtype))
    if var.dims is None:
        return
    fits = all(want in (-1, size) for want, size in zip(var.dims, array.shape, strict=False))
    if len(var.dims) != array.ndim or not fits:
        raise wrong_shape(var.name, var.dims, array.shape, hint=f"the model says {shape_text(var)}")


# ---- what comes out -----------------------------------------------------------------------------


def _shown(feed: Mapping[str, Array], outputs: Mapping[str, Array]) -> str:
    rows = [(f"feed   {name}", _kind(array), brief(array)) for name, array in feed.items()]
    rows += [(f"fetch  {name}", _kind(array), brief(array)) for name, array in outputs.items()]
    lines = [table(rows, indent="", left=3)]
    for name, array in outputs.items():
        if looks_like_probabilities(array):
            lines.append(f"likeliest class in each row of {name}: {_classes(array)}")
    return "\n".join(lines)


def _kind(array: Array) -> str:
    return f"{array.dtype} {list(array.shape)}"


def looks_like_probabilities(array: Array) -> bool:
    """True for rows of at least two numbers that are not negative and add up to 1.

    >>> looks_like_probabilities(np.float32([[0.25, 0.75], [1, 0]]))
    True
    """
    if array.ndim != 2 or array.dtype.kind != "f" or array.shape[1] < 2 or not array.size:
        return False
    return bool((array >= 0).all() and np.allclose(array.sum(axis=1), 1, atol=1e-3))


def _classes(array: Array) -> str:
    more = " …" if len(array) > ROWS else ""
    return " ".join(map(str, array.argmax(axis=1)[:ROWS])) + more


def _timed(executable: runtime.Executable, feed: Mapping[str, Array]) -> str:
    """Milliseconds of more runs, the median and the best."""
    spent: list[float] = []
    until = time.perf_counter() + PATIENCE
    while len(spent) < REPEATS and (not spent or time.perf_counter() < until):
        start = time.perf_counter()
        executable(feed)
        spent.append(time.perf_counter() - start)
    return f"{count(len(spent), 'more run')}: {_ms(median(spent))} each, the best {_ms(min(spent))}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
