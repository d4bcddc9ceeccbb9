"""Approximate instructions, changed by at most the errors that NVIDIA states."""

import numpy as np
import pytest

from tests.tools.ptx.on_machine import TOLERANCE, cases, module_of, run_and_compare
from tests.tools.ptx.support import kernel
from tools.ptx import Memory
from tools.ptx.approximations import BOUNDS, changed, perturbed
from tools.ptx.launch import kernels, launch

X = np.concatenate([np.geomspace(1e-3, 60, 400), [0.5, 1, 2]]).astype("f4")
FORMS = {
    "ex2": "ex2.approx.ftz.f32", "lg2": "lg2.approx.f32", "rcp": "rcp.approx.f32",
    "sqrt": "sqrt.approx.f32", "rsqrt": "rsqrt.approx.f32", "tanh": "tanh.approx.f32",
    "sin": "sin.approx.f32", "cos": "cos.approx.f32",
}  # fmt: skip


def computed(instruction, change):
    """An instruction of each element of X."""
    place = "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nadd.u64 %rd4, %rd1, %rd2;\n"
    body = place + f"ld.global.b32 %r6, [%rd3];\n{instruction};\nst.global.b32 [%rd4], %r7;\n"
    (program,) = kernels(kernel(body)).values()
    memory, out = Memory(), np.zeros_like(X)
    parameters = {
        name: memory.add(name, each).to_bytes(8, "little")
        for name, each in (("p0", X), ("p1", out))
    }
    program = perturbed(program) if change else program
    launch(program, (1, 1, 1), (len(X), 1, 1), 0, parameters, memory)
    return out


@pytest.mark.parametrize("opcode", FORMS)
def test_results_change_within_the_bound(opcode):
    instruction = f"{FORMS[opcode]} %r7, %r6"
    exact, other = computed(instruction, False), computed(instruction, True)
    distance, bound = np.abs(other.astype("f8") - exact), BOUNDS[opcode](exact.astype("f8"))
    half = np.spacing(np.abs(exact)).astype("f8") / 2  # the result is rounded to float32
    assert (distance <= bound + half).all()
    assert (distance > 0).mean() > 0.4


def test_division_changes_and_exact_instructions_do_not():
    full, exact = "div.full.f32 %r7, %r6, %r6", "sqrt.rn.f32 %r7, %r6"
    assert (computed(full, True) != computed(full, False)).any()
    assert (computed(exact, True) == computed(exact, False)).all()


def test_zeros_infinities_and_nan_stay():
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan], "f4")
    assert changed(special, BOUNDS["ex2"]).tobytes() == special.tobytes()


@pytest.mark.parametrize("op", ["softmax", "sigmoid", "tanh_grad", "layer_norm", "log_loss"])
def test_kernels_still_agree_with_their_ops(op, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("FLUID_PERTURB", "1")
    _, make, sample = next(each for each in cases() if each[0] == op)
    case = make(sample)
    assert run_and_compare(case, *module_of(case), 80, TOLERANCE["fp32"])
