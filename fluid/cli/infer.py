"""`fluid infer`: run a saved model on arrays, numbers or images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from compiler.errors import CompileError
from compiler.ir.types import Array
from compiler.report.table import count
from compiler.support.escape import one_line
from fluid.cli.compare import compare, compared
from fluid.cli.describe import describe, described, package_described
from fluid.cli.layout import ModelFiles, locate
from fluid.cli.limits import at_most, check_model_size, within
from fluid.cli.model import CommandError, SavedModel, load_model, load_package
from fluid.cli.profiling.steps import profiled
from fluid.cli.target import GPU, on_target
from fluid.cli.terminal import progress_line
from fluid.cli.values.arrays import expect_output, read_arrays, write_arrays
from fluid.cli.values.images import ImageOptions
from fluid.cli.values.inputs import Feed, expect_sequences, read_feeds
from fluid.cli.values.results import Result, shown
from fluid.inference.packages import is_package
from fluid.inference.predictor import Predictor
from fluid.profiler import tracing
from runtime.device import CUDAPlace
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor

WARM_UPS, REPEATS, PATIENCE = 2, 50, 1.0
"""Warm-up runs, the most runs that `--time` makes, and the seconds after which it
starts no more.
"""

EVERY = 0.1
"""Seconds between updates of the progress line."""


def infer(given: argparse.Namespace) -> int:
    """Describe a model, or run it, print its outputs, and write, time and compare them."""
    with within(given.time_limit), on_target(given.target):
        return _inferred(given)


def _inferred(given: argparse.Namespace) -> int:
    if given.describe and is_package(given.model_dir):
        print(package_described(given.model_dir))
        return 0
    if given.describe:
        return _describe(_layout(given))
    started = time.perf_counter()
    with _progress("loading"):
        model = _loaded(given)
        theirs = _other(given.check, given.memory_limit)
    if given.output:
        expect_output(given.output, sum(1 + var.lod_level for var in model.fetches))
    feed = read_feeds(model, given.input, given.lod, _image_options(given), given.memory_limit)
    loaded = time.perf_counter()
    place = CUDAPlace(0) if given.target == GPU else None
    predictor = model.predictor(given.dtype, given.memory_limit, place)
    with (
        _progress("compiling and running"),
        tracing(given.trace),
        at_most(given.memory_limit),
    ):
        outputs = dict(zip(model.fetch_names, _run(model, predictor, feed), strict=True))
    finished = time.perf_counter()
    print(shown(feed, outputs, given.show))
    spent = f"loaded in {_ms(loaded - started)}, compiled and first run in {_ms(finished - loaded)}"
    print(f"\n{spent}")
    if given.trace:
        print(f"trace of it in {given.trace}: open it in ui.perfetto.dev or chrome://tracing")
    if given.time or given.repeat:
        print(_timed(predictor, feed, given.repeat))
    if given.profile:
        with _progress("profiling"):
            text = profiled(lambda: predictor.run(feed))
        print(f"\n{text}")
    return _kept(given, _arrays(outputs), theirs)


def _run(model: SavedModel, predictor: Predictor, feed: Mapping[str, Feed]) -> list[Result]:
    """Run the model; if an op fails because a feed has no LoD, raise that as the error."""
    try:
        return predictor.run(feed)
    except CompileError as error:
        if "LoD" in error.message:
            expect_sequences(model, feed)
        raise


def _layout(given: argparse.Namespace) -> ModelFiles:
    return locate(given.model_dir, given.model_filename, given.params_filename)


def _loaded(given: argparse.Namespace) -> SavedModel:
    """Load a saved model, or one from a package that `fluid compile` wrote."""
    if is_package(given.model_dir) and given.target:
        raise CommandError("--target is for models: a package is compiled already")
    if is_package(given.model_dir):
        return load_package(given.model_dir)
    layout = _layout(given)
    check_model_size(layout, given.memory_limit)
    return load_model(layout.folder, layout.model, layout.params)


def _describe(layout: ModelFiles) -> int:
    description = describe(layout)
    print(described(description))
    return 1 if description.obstacles else 0


def _image_options(given: argparse.Namespace) -> ImageOptions:
    """The image preprocessing options."""
    return ImageOptions(given.scale, given.mean, given.std, given.bgr, given.short, given.size)


def _other(path: Path | None, limit: int | None) -> dict[str, Array] | None:
    """The results of the other run to compare with, if any."""
    if path is None:
        return None
    arrays = read_arrays(path, limit)
    return arrays if isinstance(arrays, dict) else {path.stem: arrays}


def _kept(
    given: argparse.Namespace, arrays: Mapping[str, Array], theirs: Mapping[str, Array] | None
) -> int:
    """Write and compare results; returns the exit code."""
    if given.output:
        write_arrays(given.output, arrays)
        print(f"written to {given.output}: {', '.join(map(one_line, arrays))}")
    if theirs is None:
        return 0
    comparisons = compare(_comparable(arrays, theirs), theirs, given.tolerance)
    print(f"\n{compared(comparisons, str(given.check))}")
    return 1 if any(comparison.why for comparison in comparisons) else 0


def _comparable(arrays: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, Array]:
    """The results, with LoD offsets only if the other run has LoD offsets too."""
    has_lod = any(LOD in name for name in theirs)
    return {name: array for name, array in arrays.items() if has_lod or LOD not in name}


def _arrays(outputs: Mapping[str, Result]) -> dict[str, Array]:
    """Results as arrays; each LoD level is an array of offsets named `NAME@LOD0`, `NAME@LOD1`, …"""
    arrays: dict[str, Array] = {}
    for name, value in outputs.items():
        arrays[name] = np.asarray(value)
        if isinstance(value, LoDTensor):
            levels = enumerate(value.lod())
            arrays |= {f"{name}{LOD}{i}": np.array(level, np.int64) for i, level in levels}
    return arrays


# ---- time ---------------------------------------------------------------------------------------


def _timed(predictor: Predictor, feed: Mapping[str, Feed], repeat: int | None) -> str:
    """Time further runs and report the median, minimum and 90th percentile in milliseconds."""
    spent: list[float] = []
    with _progress("timing") as tell:
        for _ in range(WARM_UPS):
            predictor.run(feed)
        until = time.perf_counter() + PATIENCE
        while _continues(spent, repeat, until):
            start = time.perf_counter()
            predictor.run(feed)
            spent.append(time.perf_counter() - start)
            tell(len(spent), repeat or REPEATS)
    most = float(np.quantile(spent, 0.9))
    return (
        f"{count(len(spent), 'more run')}: {_ms(float(np.median(spent)))} each (median), "
        f"the best {_ms(min(spent))}, nine of ten below {_ms(most)}"
    )


def _continues(spent: Sequence[float], repeat: int | None, until: float) -> bool:
    if repeat is not None:
        return len(spent) < repeat
    return len(spent) < REPEATS and (not spent or time.perf_counter() < until)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress line on a terminal, cleared at the end."""
    shown = 0.0

    def tell(done: int, of: int) -> None:
        nonlocal shown
        if time.perf_counter() - shown > EVERY:
            shown = time.perf_counter()
            progress_line(f"{what}: {done} of {of}")

    progress_line(f"{what} …")
    try:
        yield tell
    finally:
        progress_line("")
