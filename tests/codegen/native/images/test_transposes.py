"""Native transposes against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.native.images.transposes import collapsed, transpose
from compiler.codegen.native.llvm_ir import I8, I16, I32, I64, Type
from compiler.codegen.native.machine import NEON, Machine
from compiler.ir.dims import Dim
from tests.support import image_kernels as support
from tests.support.compiled_kernels import assembly, on_machines

ELEMENTS = pytest.mark.parametrize("element", [I8, I16, I32, I64], ids=str)
CASES = [
    ((3, 37), (1, 0)),
    ((2, 5, 7, 9), (0, 2, 3, 1)),
    ((2, 70, 3), (0, 2, 1)),
    ((65, 129), (1, 0)),
    ((16, 32), (1, 0)),
    ((4, 6, 5), (1, 0, 2)),
    ((3, 5, 4, 2, 7), (4, 1, 0, 3, 2)),
    ((5000,), (0,)),
    ((2, 3, 5000), (1, 0, 2)),
    ((1, 3, 1), (2, 1, 0)),
    ((7, 300, 33), (2, 0, 1)),
    ((3, 2, 40), (1, 0, 2)),
]


@on_machines
@ELEMENTS
@pytest.mark.parametrize(("shape", "order"), CASES, ids=str)
@pytest.mark.parametrize("is_open", ["known", "batch", "all"])
def test_a_transpose_is_numpys(
    machine: Machine, element: Type, shape: tuple[int, ...], order: tuple[int, ...], is_open: str
) -> None:
    values = np.random.default_rng(0).integers(-100, 100, size=shape)
    values = values.astype(support.DTYPES[element.element])
    sizes = {f"d{axis}": size for axis, size in enumerate(shape)}
    names = {"known": [], "batch": ["d0"], "all": list(sizes)}[is_open]
    inputs = [Dim.named(name) if name in names else size for name, size in sizes.items()]
    arrays = {"X": values, "Out": np.zeros_like(values.transpose(order))}
    [result] = support.run(
        transpose(machine, element, inputs, order), machine, arrays, ["Out"], sizes
    )
    assert (result == values.transpose(order)).all()


def test_axes_that_stay_adjacent_are_merged() -> None:
    assert collapsed((2, 3, 4, 5), (0, 2, 3, 1)) == ([2, 3, 20], [0, 2, 1])
    assert collapsed((2, 3, 4, 5), (2, 3, 0, 1)) == ([6, 20], [1, 0])
    assert collapsed((2, 1, 3), (1, 0, 2)) == ([6], [0])
    assert collapsed((1, 1), (1, 0)) == ([], [])


@ELEMENTS
def test_transposes_assemble_for_neon(element: Type) -> None:
    for shape, order in (((2, 19, 35), (0, 2, 1)), ((4, 6, 5), (1, 0, 2))):
        [call] = transpose(NEON, element, shape, order).calls
        assert "\tbl\t" not in assembly(call.kernel, NEON)


@on_machines
@ELEMENTS
def test_blocks_stay_in_registers(machine: Machine, element: Type) -> None:
    [call] = transpose(machine, element, (64, 256), (1, 0)).calls
    text = assembly(call.kernel, machine)
    assert "call" not in text
    assert len(support.spills(text)) <= (10 if machine.registers == 16 else 0)
