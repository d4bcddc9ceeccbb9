"""Tiles of a program's products, timed on the GPU of a place and stored in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

import runtime
from compiler.codegen.module import Module
from compiler.errors import CompileError
from compiler.ir.dims import evaluate
from compiler.options import Cache, Options
from compiler.support.dataclass import dataclass
from compiler.support.lazy_loading import load
from compiler.support.settings.fluid import FLUID_TUNE
from fluid.framework import Program
from fluid.running.kernels_ahead import with_machine_code
from runtime.device import CUDAPlace, Place
from runtime.gpu.cuda import (
    device_of,
    gpu_name,
    gpu_of,
    interprets,
    library_product,
    machine,
)
from runtime.gpu.launches import Launcher
from runtime.gpu.timed_launches import TimedLauncher, timed

__all__ = ["is_at_hand", "timed_options", "tuned_options"]

Feed: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Names of feeds, or their shapes."""


def is_at_hand(place: Place) -> bool:
    """Whether kernels of a place run on a GPU, not in the interpreter or on the PTX machine."""
    return isinstance(place, CUDAPlace) and not interprets() and not machine()


def tuned_options(
    place: Place, options: Options, program: Program, feed: Feed, fetch: Sequence[str]
) -> Options:
    """The options with the tiles that were timed on the GPU of a place.

    With `FLUID_TUNE=1`, the products of the program that are not stored are timed first; where no
    GPU is at hand, a warning says so. Tiles that the options have stay.
    """
    if options.tiles or not isinstance(place, CUDAPlace):
        return options
    if not is_at_hand(place):
        if FLUID_TUNE.read():
            warnings.warn("FLUID_TUNE=1: no tiles are timed, since no GPU runs them", stacklevel=2)
        return options
    options = replace(options, tiles=_stored(place).read())
    return timed_options(place, options, program, feed, fetch) if FLUID_TUNE.read() else options


def timed_options(
    place: CUDAPlace, options: Options, program: Program, feed: Feed, fetch: Sequence[str]
) -> Options:
    """Time the products of a program that are not stored yet; return the options with all tiles.

    Products are those of kernels, also where a library would compute them.
    """
    own = replace(options, libraries=False)
    stages = import_module("compiler.driver").compile_stages(
        program, feed=feed, fetch=fetch, target="triton", options=own
    )
    measured = import_module("compiler.codegen.triton.tiling.measured")
    tuning = import_module("compiler.codegen.triton.tiling.tuning")
    target = import_module("compiler.codegen.triton.target")
    known = measured.parse(options.tiles.splitlines(), "stored tiles")
    device = measured.device_tiles(options.gpu, "", options.exact_products)
    products = target.products(stages.plan)
    clock = _Clock(place, options)
    found = tuning.tune(products, device, known, clock, clock.library)
    return replace(options, tiles=_stored(place).add(found)) if found else options


def _stored(place: CUDAPlace) -> Any:
    """The file of the cache for the GPU of a place and the versions of Triton and torch."""
    device = device_of(place)
    metadata = load(partial(import_module, "importlib.metadata"))
    title = f"{gpu_name(device)}, {gpu_of(device)}, triton {metadata.version('triton')}"
    tuning = import_module("compiler.codegen.triton.tiling.tuning")
    return tuning.TunedTiles(Cache.from_env(kind="tiles").folder, title)


@dataclass(frozen=True)
class _Clock:
    """Times products on the GPU of a place."""

    place: CUDAPlace
    options: Options

    def __call__(self, candidate: object) -> float | None:
        """The microseconds of a product with a tile; None if its kernels do not run."""
        try:
            return self._microseconds(candidate)
        except CompileError:  # such as PlaceError: a tile that needs more memory than there is
            return None

    def library(self, candidate: Any) -> float:
        """The microseconds of a product by the vendor's library."""
        device, sizes = device_of(self.place), candidate.sizes
        call = library_product(candidate.form, sizes.rows, sizes.columns, sizes.inner, device)
        return timed(call, device, library=True)

    def _microseconds(self, candidate: object) -> float:
        module, names = with_machine_code(self._module(candidate), self.place)
        device, times = device_of(self.place), list[float]()
        timed = {
            name: TimedLauncher(value, device, times) if isinstance(value, Launcher) else value
            for name, value in names.items()
        }
        rng = np.random.default_rng(0)
        feeds = {
            row.name: rng.standard_normal([evaluate(n, {}) for n in row.shape]).astype(row.dtype)
            for row in module.feeds
        }
        runtime.load(module, self.place, names=timed)(feeds)
        return sum(times)

    def _module(self, candidate: object) -> Module:
        options = Options(
            gpu=self.options.gpu, tiles=str(candidate), cuda_graph=False,
            exact_products=self.options.exact_products, libraries=False,
        )  # fmt: skip
        graph = import_module("compiler.codegen.triton.tiling.tuning").product_graph(candidate)
        driver = import_module("compiler.driver")
        return driver.compile_graph(graph, target="triton", options=options).module
