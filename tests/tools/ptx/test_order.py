"""CTAs in other orders: the same bytes where a kernel is right, others where it depends on it."""

import numpy as np
import pytest

from runtime.errors import PlaceError
from runtime.gpu.package import machine_library
from tests.tools.ptx.on_machine import cases, module_of, on_machine
from tests.tools.ptx.support import kernel
from tools.ptx import Memory
from tools.ptx.launch import kernels, launch
from tools.ptx.library import Library
from tools.ptx.order import Order

LAST = "mov.u32 %r1, %ctaid.x;\nst.global.b32 [%rd0], %r1;\n"
SIDES = """
setp.lt.u32 %p1, %r0, 32;
@%p1 bra FIRST;
st.global.b32 [%rd0], 2;
bra DONE;
FIRST:
st.global.b32 [%rd0], 1;
DONE:
"""
"""Two warps write to one word, each on its side of a branch."""


def word(body, seed, grid=8, threads=1):
    """A word after a launch in the order of a seed."""
    (program,) = kernels(kernel(body, 1)).values()
    memory, out = Memory(), np.zeros(1, "u4")
    parameters = {"p0": memory.add("p0", out).to_bytes(8, "little")}
    order = None if seed is None else Order(seed, 0)
    launch(program, (grid, 1, 1), (threads, 1, 1), 0, parameters, memory, order=order)
    return int(out[0])


def test_the_order_of_ctas_follows_from_the_seed():
    assert word(LAST, None) == 7
    results = [word(LAST, seed) for seed in range(12)]
    assert results == [word(LAST, seed) for seed in range(12)]
    assert len(set(results)) > 3
    assert sorted(Order(5, 0).ctas(6)) == [*range(6)]
    assert Order(5, 0).ctas(6) != Order(5, 1).ctas(6)


def test_sides_of_a_branch_have_no_order():
    assert {word(SIDES, seed, 1, 64) for seed in range(12)} == {1, 2}


@pytest.mark.parametrize("op", ["softmax", "conv2d_grad", "batch_norm", "lookup_table", "argsort"])
def test_kernels_give_the_same_bytes_in_any_order(op):
    pytest.importorskip("triton")
    kind, make, sample = next(case for case in cases() if case[0] == op)
    module, feed, _ = module_of(make(sample))
    results = [on_machine(module, Library(80, order=seed))(feed) for seed in (None, 1)]
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes(), kind


def test_the_environment_chooses_the_order(monkeypatch):
    monkeypatch.setenv("FLUID_ORDER", "3")
    assert machine_library("ptx:80").order == 3
    monkeypatch.setenv("FLUID_ORDER", "first")
    with pytest.raises(PlaceError, match="FLUID_ORDER is 'first'"):
        machine_library("ptx:80")
