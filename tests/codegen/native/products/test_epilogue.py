"""Epilogues are written once in a kernel if they are long, and load what rows share once."""

import numpy as np
import pytest

from compiler.codegen.native.llvm_ir import F32, Function, Value
from compiler.codegen.native.machine import AVX512, Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.contraction import Steps
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.products.place import ResultAddresses
from compiler.codegen.native.products.tiles import Extent, choose_tiling, rests
from compiler.ir.dims import Dim
from compiler.support.thresholds import lowered
from tests.codegen.native.support import run_checked_steps, run_steps
from tests.support.compiled_kernels import on_machines

N = Dim.named("N")
LONG, INNER, COLUMNS = 40, 24, 70


def _long(f: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
    """The sums plus a bias, multiplied many times by a residual; and the sums."""
    result = f.add(values[0], place.load("bias"))
    for _ in range(LONG):
        result = f.mul(result, place.load("residual"))
    return [result, values[0]]


def _short(f: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
    return [f.add(values[0], place.load("bias"))]


BIAS = EpilogueOperand("bias", F32, (0, 1))
OPERANDS = (EpilogueOperand("out", F32), BIAS)
MORE = (EpilogueOperand("residual", F32), EpilogueOperand("sums", F32))
EPILOGUE = Epilogue("long", (*OPERANDS, *MORE), _long, ("out", "sums"))


def _steps(machine: Machine, epilogue: Epilogue = EPILOGUE) -> Steps:
    return matmul(machine, F32, (), N, INNER, COLUMNS, epilogue=epilogue, constant=True)


def _arrays(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    shapes = {"a": (count, INNER), "b": (INNER, COLUMNS), "bias": (COLUMNS,)}
    arrays = {name: random.random(shape, "f4") for name, shape in shapes.items()}
    arrays["residual"] = 1 + random.random((count, COLUMNS), "f4") / 100
    return {**arrays, **{name: np.zeros((count, COLUMNS), "f4") for name in ("out", "sums")}}


@on_machines
@pytest.mark.parametrize("count", [1, 5, 29])
def test_results_are_the_same_bits_as_inlined(machine: Machine, count: int) -> None:
    with lowered({"inlined_epilogue": 1000}):
        inlined = _steps(machine)
    assert "@epilogue" not in inlined.calls[-1].kernel.text()
    arrays, sizes = _arrays(count), {"N": count}
    first, second = (run_steps(each, machine, arrays, sizes) for each in (inlined, _steps(machine)))
    for name in ("out", "sums"):
        assert first[name].tobytes() == second[name].tobytes()
    np.testing.assert_allclose(second["sums"], arrays["a"] @ arrays["b"], rtol=1e-5)
    expected = (second["sums"] + arrays["bias"]) * arrays["residual"] ** LONG
    np.testing.assert_allclose(second["out"], expected, rtol=1e-4)


def test_bounds_are_checked_in_called_epilogues() -> None:
    arrays, sizes = _arrays(29), {"N": 29}
    checked = run_checked_steps(_steps(AVX512), AVX512, arrays, sizes)
    plain = run_steps(_steps(AVX512), AVX512, arrays, sizes)
    assert checked["out"].tobytes() == plain["out"].tobytes()


@on_machines
def test_a_long_epilogue_is_written_once_for_full_and_once_for_masked_vectors(
    machine: Machine,
) -> None:
    text = _steps(machine).calls[-1].kernel.text()
    assert text.count("define internal void @epilogue") == 2
    assert text.count("fmul") == 2 * LONG
    with lowered({"inlined_epilogue": 1000}):
        inlined = _steps(machine).calls[-1].kernel.text()
    assert len(text) < len(inlined) / 2


def test_kernels_of_different_called_epilogues_have_different_names() -> None:
    def shorter(f: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
        return [_long(f, values, place)[0], f.neg(values[0])]

    other = Epilogue("long", (*OPERANDS, *MORE), shorter, ("out", "sums"))
    a, b = (_steps(AVX512, each).calls[-1].kernel.name for each in (EPILOGUE, other))
    assert a != b


def test_rows_of_a_tile_load_a_bias_once() -> None:
    """Of 12 rows and 2 vectors, 2 vectors of the bias are loaded, not 24."""

    def loads(epilogue: Epilogue) -> int:
        steps = matmul(AVX512, F32, (), 12, INNER, 32, epilogue=epilogue, constant=True)
        text = steps.calls[-1].kernel.text()
        assert text.count("store <16 x float>") == 24
        return text.count("= load <16 x float>")

    assert loads(Epilogue("bias", OPERANDS, _short)) == loads(Epilogue()) + 2


def test_open_rows_are_divided_into_tiles_that_leave_few_others() -> None:
    """Of 7 × 7 pixels, tiles of 7 rows need no code for other sizes; tiles of 11 need 3 more."""
    extent = Extent(1, None, 1, 320, 960, 960, 49 * 3840, 3840, 3840, 4, multiple=49)
    tiling = choose_tiling(AVX512, F32, extent, True)
    assert not rests(tiling.high, 49)
