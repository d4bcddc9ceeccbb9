"""Kernels round as documented: TF32 factors, quotients, square roots; the PTX shows how."""

import re

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import fluid
from compiler import compile as compile_program
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.options import Options

RANDOM = np.random.default_rng(7)


def module_of(make, dtype="float32", options=None, shape=(8, 64)):
    """The module of one layer or two over fed x and y, and how to run it on a device."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        out = make(fluid.data("x", shape, dtype), fluid.data("y", shape, dtype))
    options = options or Options()
    return compile_program(program, feed=["x", "y"], fetch=[out], target="triton", options=options)


def run(module, x, y):
    import runtime
    from runtime.device import CUDAPlace

    (out,) = runtime.load(module, place=CUDAPlace(0))({"x": x, "y": y})
    return out


def assembly(module, folder, target="cuda:90"):
    """The assembly of a module's kernels for a GPU."""
    (built,) = build([module], gpus(target), folder, 1 << 30, processes=1)
    suffix = "ptx" if target.startswith("cuda") else "amdgcn"
    return "\n".join(each.code.files[suffix].decode() for each in built)


# ---- TF32 ----


def to_tf32(x):
    """Nearest TF32, ties away from 0."""
    return ((x.view(np.int32) + 4096) & -8192).view(np.float32)


def tf32_product():
    return module_of(
        lambda x, y: fluid.layers.matmul(x, y, transpose_y=True), options=Options(tf32=True)
    )


@pytest.mark.device
def test_factors_are_rounded_to_tf32():
    x, y = (RANDOM.uniform(1, 2, (8, 64)).astype(np.float32) for _ in range(2))
    result = run(tf32_product(), x, y).astype(np.float64)
    rounded = to_tf32(x).astype(np.float64) @ to_tf32(y).astype(np.float64).T
    np.testing.assert_allclose(result, rounded, rtol=1e-6)
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    assert abs(np.mean(result / exact - 1)) < 1e-4, "truncated factors are 6.5e-4 too small"


@pytest.mark.device
def test_rounding_to_tf32_keeps_nan_and_infinity():
    x, y = (np.ones((8, 64), np.float32) for _ in range(2))
    x.view(np.int32)[0, 0] = 0x7FFFFFFF  # the NaN of CUDA, which an addition would make -0
    x[1, 0] = np.inf
    result = run(tf32_product(), x, y)
    assert np.isnan(result[0]).all() and (result[1] == np.inf).all() and (result[2] == 64).all()


def test_the_assembly_rounds_to_tf32(tmp_path):
    module = tf32_product()
    assert "cvt.rna.tf32.f32" in assembly(module, tmp_path)
    assert "cvt.rna" not in assembly(module, tmp_path, "hip:gfx942")


# ---- float32 by bfloat16 parts ----


def by_parts(inner, **options):
    """A product of [16, inner] and [16, inner] that tensor cores compute by bfloat16 parts."""
    line = f"bf16x6 NT 1 16 16 {inner}  16x16x32 3 4 1  - -"
    return module_of(
        lambda x, y: fluid.layers.matmul(x, y, transpose_y=True), shape=(16, inner),
        options=Options(gpu="cuda:90", tiles=line, **options),
    )  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize(("inner", "limit"), [(64, 2e-7), (512, 2.5e-7), (4096, 4e-7)])
def test_products_by_parts_are_more_accurate_than_float32(inner, limit):
    x, y = (RANDOM.standard_normal((16, inner)).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    error = np.abs(run(by_parts(inner), x, y) - exact).max() / np.abs(exact).max()
    assert error < limit, "that of cuBLAS is 4e-7 for 768, 1e-6 for 4096"


@pytest.mark.device
def test_products_of_positive_numbers_by_parts_have_no_bias():
    x, y = (RANDOM.uniform(1, 2, (16, 512)).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    assert abs(np.mean(run(by_parts(512), x, y) / exact - 1)) < 3e-8


@pytest.mark.device
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_parts_keep_infinity_nan_and_the_largest_and_smallest_numbers():
    largest, tiny = np.finfo(np.float32).max, np.float32(2.0**-140)
    x, y = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    x[:6, 0] = np.inf, -np.inf, np.nan, largest, -largest, tiny
    x[6, :2] = np.inf, -np.inf
    y[:4, 0] = 1, -2, 0.5, 0
    y[:4, 1] = 1
    with np.errstate(invalid="ignore", over="ignore"):
        expected = x @ y.T
    actual = run(by_parts(32), x, y)
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=2.0**-133)


def test_exact_products_are_not_computed_by_parts():
    assert "float32_dot" in by_parts(64).source
    assert "float32_dot" not in by_parts(64, exact_products=True).source
    assert Options.from_env({"FLUID_EXACT_PRODUCTS": "1"}).exact_products
    with pytest.raises(ValueError, match="set one of them"):
        Options(tf32=True, exact_products=True)


# ---- quotients and square roots ----


def remainders(dtype="float32"):
    return module_of(fluid.layers.elementwise_mod, dtype)


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_at_exact_multiples_are_0(dtype):
    y = RANDOM.uniform(0.1, 9, (8, 64)).astype(np.float16).astype(dtype)
    x = y * RANDOM.integers(-900, 900, y.shape).astype(dtype)  # exact: 11 + 10 bits
    y *= np.where(RANDOM.random(y.shape) < 0.5, -1, 1).astype(dtype)
    assert not run(remainders(dtype), x, y).any()


@pytest.mark.device
def test_remainders_next_to_multiples_and_of_special_values():
    y = RANDOM.integers(1, 9, (8, 64)).astype(np.float32)
    x = np.nextafter(y * RANDOM.integers(1, 900, y.shape).astype(np.float32), np.float32(0))
    special = np.array([1, -1, 0, np.inf, np.nan, 2.5, -0.5, 7], np.float32)
    x[0, :], y[0, :] = np.repeat(special, 8), np.tile([3, -3, 0, np.inf, -np.inf, np.nan, 1, -1], 8)
    with np.errstate(all="ignore"):
        expected = np.remainder(x, y)
    actual = run(remainders(), x, y)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-4)  # an interpreter has no FMA


def test_the_assembly_divides_exactly(tmp_path):
    text = assembly(remainders(), tmp_path)
    assert "div.rn.f32" in text and not re.search(r"div\.(full|approx)", text)


def test_the_assembly_takes_exact_square_roots(tmp_path):
    text = assembly(module_of(lambda x, y: fluid.layers.sqrt(x) + y), tmp_path)
    assert "sqrt.rn.f32" in text and "sqrt.approx" not in text
    wide = module_of(lambda x, y: fluid.layers.sqrt(x) + y, "float64")
    assert "sqrt.rn.f64" in assembly(wide, tmp_path)


# ---- atomics ----


def test_sums_of_duplicate_rows_need_no_fence(tmp_path):
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x, ids = fluid.data("x", [8, 4]), fluid.data("ids", [6], "int64")
        x.stop_gradient = False
        (out,) = fluid.gradients([fluid.layers.gather(x, ids, overwrite=False)], [x])
    module = compile_program(program, feed=["x", "ids"], fetch=[out], target="triton")
    text = assembly(module, tmp_path)
    assert "atom.global.gpu.relaxed.add" in text
    assert "acq_rel" not in text
