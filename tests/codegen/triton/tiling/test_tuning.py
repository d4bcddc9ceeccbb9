"""Tiles that are chosen by timing: each product once, the fastest, in a file that is checked."""

from dataclasses import replace

import pytest

import compiler.driver
import fluid
from compiler.codegen.triton.target import products
from compiler.codegen.triton.tiling.measured import ProductSizes, TileTable, device_tiles, parse
from compiler.codegen.triton.tiling.tuning import Product, TunedTiles, candidates, tune
from compiler.options import Options

PRODUCT = Product(("half",), "NT", ProductSizes(1, 96, 200, 2048))
DEVICE = device_tiles("cuda:90")


class FakeClock:
    """A clock by which one candidate is the fastest, and some do not run."""

    def __init__(self, fastest, failing=()):
        self.fastest, self.failing, self.timed = fastest, failing, []

    def __call__(self, candidate):
        self.timed.append(candidate)
        if candidate in self.failing:
            return None
        return 5.04 if candidate == self.fastest else 9.0


def test_the_fastest_candidate_that_runs_is_chosen():
    first, second, *_ = candidates(PRODUCT, DEVICE)
    clock, library = FakeClock(second, failing=[first]), FakeClock(None)
    fastest = replace(second, microseconds=5.0, library=9.0)
    assert tune([PRODUCT], DEVICE, TileTable(), clock, library) == [fastest]
    assert library.timed == [second]
    assert len(clock.timed) == len(set(clock.timed)) > 10
    assert {candidate.split for candidate in clock.timed} == {1, 2, 4}


def test_known_products_and_windows_of_images_are_not_timed():
    fastest, clock = FakeClock(candidates(PRODUCT, DEVICE)[0]), FakeClock(None)
    (best,) = tune([PRODUCT], DEVICE, TileTable(), fastest, clock)
    clock.timed.clear()
    windows = replace(PRODUCT, form="windows-NT")
    assert tune([PRODUCT, windows], DEVICE, TileTable((best,)), clock, clock) == []
    assert not clock.timed


def test_the_library_is_timed_only_for_matrices_in_half_precision():
    single = Product(("fma",), "NT", ProductSizes(1, 96, 200, 64))
    stack = replace(PRODUCT, sizes=ProductSizes(2, 96, 200, 2048))
    library = FakeClock(None)
    found = tune([single, stack], DEVICE, TileTable(), FakeClock(None), library)
    assert [each.library for each in found] == [None, None] and not library.timed


def test_a_product_that_runs_with_no_tile_is_left_out():
    clock = FakeClock(None, candidates(PRODUCT, DEVICE))
    assert tune([PRODUCT], DEVICE, TileTable(), clock, clock) == []


def test_products_of_a_program_are_those_that_tiles_are_chosen_for():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x, y = fluid.data("x", [96, 2048], "float16"), fluid.data("y", [200, 2048], "float16")
        out = fluid.layers.matmul(x, y, transpose_y=True)
    options = Options(gpu="cuda:90", libraries=False)
    stages = compiler.driver.compile_stages(
        program, feed=["x", "y"], fetch=[out], target="triton", options=options
    )
    assert products(stages.plan) == [PRODUCT]


def test_stored_choices_are_read_again_and_extended(tmp_path):
    one, two, *_ = (replace(each, microseconds=1.5) for each in candidates(PRODUCT, DEVICE))
    file = TunedTiles(tmp_path, "NVIDIA H200, cuda:90, triton 3.6.0")
    assert file.read() == ""
    file.add([one])
    lines = file.add([two])
    assert TunedTiles(tmp_path, file.title).read() == lines == f"{one}\n{two}\n"
    assert parse(lines.splitlines(), "t").products == (one, two)
    assert TunedTiles(tmp_path, "NVIDIA H200, cuda:90, triton 3.7.0").read() == ""


@pytest.mark.parametrize("damage", ["half NT 1 2\n", "import os\n", "\ufffd"])
def test_a_damaged_file_is_not_used(tmp_path, damage):
    file = TunedTiles(tmp_path, "GPU")
    file.add([])
    with (tmp_path / file.name).open("a") as text:
        text.write(damage)
    with pytest.warns(UserWarning, match=r"GPU\.txt is not used"):
        assert file.read() == ""


def test_a_file_of_another_device_is_not_used(tmp_path):
    TunedTiles(tmp_path, "GPU 1").add([])
    (tmp_path / "GPU-1.txt").rename(tmp_path / "GPU-2.txt")
    with pytest.warns(UserWarning, match="its first line"):
        assert TunedTiles(tmp_path, "GPU 2").read() == ""
