"""Tiles are timed once on the GPU of a place, stored, and part of the options afterwards."""

from contextlib import contextmanager

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import fluid
from compiler.codegen.triton.tiling.measured import parse
from compiler.options import Options
from compiler.support.settings.fluid import FLUID_CACHE, FLUID_GPU, FLUID_TUNE
from fluid.running import tuning
from runtime.device import CPUPlace, CUDAPlace
from runtime.gpu import timed_launches

GPU = CUDAPlace(0)
PROGRAM = fluid.Program()
with fluid.program_guard(PROGRAM, fluid.Program()):
    _X, _Y = (fluid.data(name, [rows, 2048], "float16") for name, rows in (("x", 96), ("y", 200)))
    _OUT = fluid.layers.matmul(_X, _Y, transpose_y=True)
STEP = (PROGRAM, ["x", "y"], [_OUT.name])


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A GPU at hand whose clock prefers 16 columns; returns the candidates that were timed."""
    timed = []

    class Clock:
        def __init__(self, place, options):
            self.library = lambda each: 0.5

        def __call__(self, each):
            timed.append(each)
            return 1.0 if each.tile.columns == 32 else 2.0

    monkeypatch.setenv(FLUID_CACHE.name, str(tmp_path))
    monkeypatch.setattr(tuning, "is_at_hand", lambda place: True)
    for name, value in (("device_of", "cuda:0"), ("gpu_name", "Fake"), ("gpu_of", "cuda:90")):
        monkeypatch.setattr(tuning, name, lambda device, value=value: value)
    monkeypatch.setattr(tuning, "_Clock", Clock)
    return timed


def test_products_are_timed_once_and_stored(card, monkeypatch):
    options = Options(gpu="cuda:90")
    assert tuning.tuned_options(GPU, options, *STEP) == options
    assert not card
    monkeypatch.setenv(FLUID_TUNE.name, "1")
    tuned = tuning.tuned_options(GPU, options, *STEP)
    (product,) = parse(tuned.tiles.splitlines(), "t").products
    assert (product.form, product.tile.columns) == ("NT", 32)
    assert (product.microseconds, product.library) == (1.0, 0.5)
    count = len(card)
    assert tuning.tuned_options(GPU, options, *STEP) == tuned
    monkeypatch.delenv(FLUID_TUNE.name)
    assert tuning.tuned_options(GPU, options, *STEP) == tuned
    assert len(card) == count > 5


def test_without_a_gpu_at_hand_nothing_is_timed_and_a_warning_says_so(monkeypatch):
    monkeypatch.setenv(FLUID_GPU.name, "ptx:90")
    assert tuning.tuned_options(GPU, Options(), *STEP) == Options()
    monkeypatch.setenv(FLUID_TUNE.name, "1")
    assert tuning.tuned_options(CPUPlace(), Options(), *STEP) == Options()
    with pytest.warns(UserWarning, match="no GPU runs them"):
        assert tuning.tuned_options(GPU, Options(), *STEP) == Options()


@pytest.mark.parametrize(
    "line",
    ["half NN 1 96 200 64 64x32x32 2 4 1 - -", "bf16x6 TN 3 40 48 64 16x32x16 3 2 1 - -",
     "fma NT 1 40 48 64 32x16x16 3 4 1 - -"],
)  # fmt: skip
def test_the_timed_product_has_the_tile_of_the_candidate(line):
    (candidate,) = parse([line], "t").products
    module = tuning._Clock(GPU, Options(gpu="cuda:90"))._module(candidate)
    (kernel,) = module.kernels
    tile = candidate.tile
    assert [kernel.constants[side] for side in ("ROWS", "COLUMNS", "INNER")] == [
        tile.rows, tile.columns, tile.inner,
    ]  # fmt: skip
    assert kernel.options.get("num_stages", 3) == tile.stages


@pytest.mark.parametrize("form", ["NN", "NT", "TN"])
def test_the_library_is_timed_with_factors_of_the_form(form, monkeypatch):
    torch = pytest.importorskip("torch")
    (candidate,) = parse([f"half {form} 1 96 40 64 64x32x32 2 4 1 - -"], "t").products
    calls = []
    monkeypatch.setattr(tuning, "device_of", lambda place: "cpu")
    monkeypatch.setattr(tuning, "timed", lambda call, *_, **settings: calls.append(call) or 1.0)
    assert tuning._Clock(GPU, Options()).library(candidate) == 1.0
    left, right = calls[0].args
    assert [each.is_contiguous() for each in (left, right)] == [side == "N" for side in form]
    torch.testing.assert_close(calls[0](), left @ right)
    assert (left @ right).shape == (96, 40)


def test_a_launch_is_timed_in_graphs(monkeypatch):
    launched, times, spent = [], [], iter([60.0, 40.0, 50.0])

    class Graph:
        def __init__(self, device, library):
            assert (device, library) == ("cuda:0", False)

        @contextmanager
        def capturing(self):
            yield

        def replay(self):
            launched.append("replay")

    def microseconds(device, work):
        work()
        return next(spent)

    class Launcher:
        def __getitem__(self, grid):
            return lambda *arguments, **constants: launched.append((grid, arguments, constants))

    monkeypatch.setattr(timed_launches, "StepGraph", Graph)
    monkeypatch.setattr(timed_launches, "microseconds", microseconds)
    timed_launches.TimedLauncher(Launcher(), "cuda:0", times)[(7,)](1, 2, ROWS=16)
    assert times == [2.0]
    assert launched.count(((7,), (1, 2), {"ROWS": 16})) == 1 + timed_launches.LAUNCHES
    assert launched.count("replay") == 1 + timed_launches.REPLAYS
