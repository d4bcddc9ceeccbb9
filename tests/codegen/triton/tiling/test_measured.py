"""Tables of measured tiles: their text, which product is nearest, and what follows for a kernel."""

import pytest

import compiler
import fluid
from compiler.codegen.triton.tiling.measured import (
    ProductSizes,
    device_tiles,
    measured_choices,
    parse,
)
from compiler.codegen.triton.tiling.tiles import FMA, HALF, HALF_FACTORS, TileChoice
from compiler.ir.dims import Dim
from compiler.options import Options
from fluid.contrib.mixed_precision import decorate

LINE = "half NT 1 2048 768 768  128x64x64 4 8 2  7.5 -"
SHARED_MEMORY = {"cuda:80": 100 << 10, "cuda:90": 228 << 10}


def module(*, gpu="cuda:90", rows=2048, columns=768, inner=768, after=None, **options):
    """A product in half precision, compiled for a GPU."""
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x, y = (
            fluid.data(*each, "float16") for each in (("x", [rows, inner]), ("y", [inner, columns]))
        )
        out = fluid.layers.matmul(x, y)
        out = out if after is None else after(out)
    feed = {"x": (rows if rows > 0 else "N", inner), "y": (inner, columns)}
    options = Options(gpu=gpu, libraries=False, **options)
    return compiler.compile(main, feed=feed, fetch=[out], target="triton", options=options)


def tiles(result):
    """Rows, columns, steps along K, stages and warps of each variant, the largest first."""
    return [
        (*(spec.constants[name] for name in ("ROWS", "COLUMNS", "INNER")),
         spec.options.get("num_stages", 3), spec.options.get("num_warps", 4))
        for spec in result.kernels if "ROWS" in spec.constants
    ]  # fmt: skip


def test_a_line_is_a_product_with_its_tile():
    (product,) = parse([f"{LINE}  # comment", "", "# arith."], "t").products
    assert product.sizes == ProductSizes(1, 2048, 768, 768)
    tile = product.tile
    assert (tile.rows, tile.columns, tile.inner, tile.stages, tile.warps) == (128, 64, 64, 4, 8)
    assert (tile.arithmetic, product.form, product.split) == (HALF_FACTORS, "NT", 2)
    assert (product.microseconds, product.library) == (7.5, None)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (LINE + " 1", "12 fields"), (LINE.replace("half", "int4"), "'int4' is none of"),
        (LINE.replace("NT", "XY"), "a form"), (LINE.replace("128x64", "100x64"), "power of two"),
        (LINE.replace("2048", "-1"), "size: '-1'"), (LINE.replace("64x64", "64x256"), "along K"),
        (LINE.replace("7.5", "nan"), "microseconds"), ("memory 4000 2", "the GB/s of copies"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_product_is_an_error_that_names_it(line, complaint):
    with pytest.raises(ValueError, match=f"t, line 2: .*{complaint}"):
        parse(["", line], "t")


@pytest.mark.parametrize("gpu", SHARED_MEMORY)
def test_shipped_tiles_fit_in_shared_memory(gpu):
    for product in device_tiles(gpu).table.products:
        tile, size = product.tile, 2 if product.tile.arithmetic == HALF_FACTORS else 4
        assert (tile.rows + tile.columns) * tile.inner * tile.stages * size <= SHARED_MEMORY[gpu]


def test_the_nearest_product_decides_if_it_is_near():
    nearest = device_tiles("cuda:90").table.nearest
    near = nearest((HALF_FACTORS,), "NN", ProductSizes(1, 2000, 800, 768), splits=True)
    assert near is not None and near.sizes == ProductSizes(1, 2048, 768, 768)
    assert nearest((HALF_FACTORS,), "NN", ProductSizes(1, 128, 10, 768), splits=True) is None
    assert nearest((HALF_FACTORS,), "TT", ProductSizes(1, 2048, 768, 768), splits=True) is None


def test_equally_measured_float32_products_are_those_that_took_least():
    nearest = device_tiles("cuda:90").table.nearest
    sizes = ProductSizes(1, 1024, 3072, 768)
    exact, best = (nearest(kinds, "NN", sizes, splits=True) for kinds in ((FMA,), ("bf16x6", FMA)))
    assert exact is not None and best is not None
    assert (exact.tile.arithmetic, best.tile.arithmetic) == ("fma", "bf16x6")


def test_a_product_with_too_few_tiles_of_the_nearest_one_has_those_of_the_rule():
    (measured,) = parse(["half NN 1 2048 512 512  128x128x64 3 8 1  1.0 -"], "t").products
    assert measured.suits(ProductSizes(1, 8192, 512, 512))
    assert measured.suits(ProductSizes(1, 2048, 512, 64))
    assert not measured.suits(ProductSizes(1, 1024, 512, 512))


@pytest.mark.parametrize(("size", "channels", "stride", "image", "filter"), [
    (56, 64, 1, (128, 64, 64, 3, 4), (64, 64, 64, 4, 4)),
    (56, 128, 2, (128, 128, 64, 3, 8), (128, 128, 64, 3, 8)),
])  # fmt: skip
def test_gradients_of_convolutions_have_measured_tiles(size, channels, stride, image, filter):
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [64, channels, size, size])
        y = fluid.layers.conv2d(x, channels, 1, bias_attr=False)
        y = fluid.layers.conv2d(y, channels, 3, stride, padding=1, bias_attr=False)
        decorate(fluid.optimizer.SGD(0.1), dtype="bfloat16").minimize(fluid.layers.mean(y))
    options = Options(gpu="cuda:90", libraries=False)
    result = compiler.compile(main, feed=["x"], fetch=[], target="triton", options=options)
    assert tiles(result)[1:3] == [image, filter]


def test_a_dynamic_number_of_rows_has_a_tile_for_each_power_of_two():
    rule = [TileChoice(96, HALF[0]), TileChoice(None, HALF[1])]
    chosen = measured_choices(rule, lambda n: HALF[2] if n == 1024 else None, Dim.named("N"))
    expected = [(96, HALF[0]), (512, HALF[1]), (1024, HALF[2]), (None, HALF[1])]
    assert [(choice.most, choice.tile) for choice in chosen] == expected


def test_kernels_have_the_tile_of_their_gpu():
    assert tiles(module(columns=3072)) == [(128, 128, 64, 3, 8)]
    assert tiles(module(columns=3072, gpu="")) == [(64, 128, 64, 3, 4)]
    assert tiles(module(columns=3072, gpu="cuda:75")) == [(64, 128, 64, 3, 4)]


def test_measured_products_of_the_options_come_first_and_are_the_same_bytes_again():
    line = "half NN 1 2048 768 768  32x32x32 2 2 1  1.0 -"
    first, again = module(tiles=line), module(tiles=line)
    assert tiles(first) == [(32, 32, 32, 2, 2)]
    assert (first.digest, first.source) == (again.digest, again.source)


def test_tiles_before_an_epilogue_leave_it_registers():
    assert tiles(module(inner=3072)) == [(128, 128, 64, 4, 4)]
    assert tiles(module(inner=3072, after=fluid.layers.relu)) == [(128, 128, 64, 4, 8)]
    assert tiles(module(rows=16384, columns=3072)) == [(128, 256, 64, 3, 8)]
    large = module(rows=16384, columns=3072, after=fluid.layers.relu)
    assert tiles(large) == [(128, 128, 64, 3, 8)]


def test_a_measured_split_has_that_many_parts():
    source = module(rows=128, inner=3072).source
    assert "(4, 128, 768)" in source


@pytest.mark.parametrize(("gpu", "inner", "count"), [
    ("cuda:90", 3072, 2), ("cuda:90", 1536, 1), ("", 2048, 2), ("", 1536, 1),
])  # fmt: skip
def test_only_long_products_in_half_precision_are_split(gpu, inner, count):
    assert len(module(rows=128, inner=inner, gpu=gpu).kernels) == count


def test_a_dynamic_number_of_rows_has_variants():
    expected = [(128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (64, 64, 64, 4, 4), (64, 32, 128, 4, 4)]
    assert tiles(module(rows=-1)) == expected
