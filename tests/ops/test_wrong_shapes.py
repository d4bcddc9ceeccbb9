"""Ops whose inputs are missing or of sizes that they cannot take: compiling names the op."""

from typing import Any

import pytest

from compiler.codegen.native.products.image_gradient import phases
from compiler.driver import compile_graph
from compiler.errors import CompileError, MissingSlot, ShapeError
from compiler.ir.graph import Graph
from compiler.ir.opdef import find, listed
from compiler.ir.opdef.type_inference import bind, infer_types
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, TensorType
from compiler.ir.windows import StaticWindow
from compiler.support.limits import MAX_OUTPUTS

LINE = "model.py:7"


def compiled(kind: str, shapes: dict[str, Any], target: str = "native", **attrs: Any) -> None:
    """Compile a graph of one op whose inputs have these shapes."""
    g, op = Graph(), OpDesc(kind, {}, {}, attrs, LINE)
    inputs = {
        slot: [g.feed(slot, TensorType(DType.INT64 if slot == "Grad_rows" else DType.FP32, shape))]
        for slot, shape in shapes.items()
    }
    defn = bind(op)
    result = infer_types(defn, defn.types_of(inputs), op)
    outputs = {
        slot: [g.var(f"{slot}.{i}.out", each) for i, each in enumerate(listed(types))]
        for slot, types in result.items()
        if types is not None
    }
    g.op(kind, inputs, outputs, op.attrs, LINE)
    g.results = [var for vars in outputs.values() for var in vars]
    compile_graph(g, target=target)


NORM = {"X": (2, 3), "Scale": (3,), "Y@GRAD": (2, 3), "Variance": (2,)}
ADAM = {
    **dict.fromkeys(("Param", "Moment1", "Moment2"), (4, 2)),
    **dict.fromkeys(("LearningRate", "Beta1Pow", "Beta2Pow"), (1,)),
    "Grad": (3, 2),
}  # fmt: skip


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize(
    ("kind", "shapes", "missing"),
    [("layer_norm_grad", NORM, "Mean"), ("adam_rows", ADAM, "Grad_rows")],
)
def test_an_optional_input_that_is_required_here(
    kind: str, shapes: dict[str, Any], missing: str, target: str
) -> None:
    with pytest.raises(MissingSlot, match=f"{kind} needs {missing}") as caught:
        compiled(kind, shapes, target)
    assert caught.value.source == LINE
    assert kind in caught.value.op


def test_sizes_that_a_kernel_cannot_take_leave_the_op_to_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(op: Any, types: Any) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(find("density_prior_box"), "host_only", fails)
    attrs = {"fixed_sizes": [2.0], "fixed_ratios": [1.0], "densities": [1], "variances": [0.1] * 4}
    compiled("density_prior_box", {"Input": (2, 3, 4, 4), "Image": (2, 3, 8, 8)}, **attrs)


@pytest.mark.parametrize("shape", [(2**62, 3), (0, 2**62, 4)])
def test_an_input_that_no_memory_holds(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"variable 'Input' is f32\[.*\], larger than any memory"):
        compiled("shape", {"Input": shape})


@pytest.mark.parametrize(
    ("kind", "shape", "attrs"),
    [
        ("unbind", (2, 2**31, 4), {"axis": 1}),
        ("unstack", (2**31, 4), {"axis": 0, "num": 2**31 - 1}),
        ("split", (2**31 - 1, 4), {"axis": 0, "num": 2**31 - 1}),
    ],
)
def test_more_outputs_than_a_program_can_have(
    kind: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=rf"{kind}: \d+ outputs are more than {MAX_OUTPUTS}"):
        compiled(kind, {"X": shape}, **attrs)


def test_phases_of_large_windows_are_not_listed() -> None:
    (phase,) = phases(StaticWindow(9, 2**31, 1, 1, 0, 0, 0))
    assert (phase.taps, phase.kernel_last) == (2**31, 2**31 - 1)
    assert [each.count for each in phases(StaticWindow.fitting(9, 1, 2**31))] == [1, 8, 2**31 - 9]
    images = {"Input": (1, 1, 1, 4), "Filter": (1, 1, 1, 2)}
    compiled("conv2d_transpose", images, strides=[1, 10**9])
    compiled("depthwise_conv2d_transpose", images, strides=[1, 10**9])


@pytest.mark.parametrize("given", [(5, 1, 1, 2), (5, 3, 2, 1), (4, 6, 4, 3), (3, 2, 2, 0)])
def test_phases_have_the_taps_that_reach_them(given: tuple[int, int, int, int]) -> None:
    kernel, stride, dilation, before = given
    for phase in phases(StaticWindow.fitting(9, *given)):
        for start in range(phase.start, phase.start + phase.count):
            taps = [k for k in range(kernel) if (start + before - k * dilation) % stride == 0]
            assert phase.taps == len(taps)
            assert not taps or phase.kernel_last == taps[-1]


def test_other_errors_of_an_op_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise AttributeError("no such part")

    monkeypatch.setattr("compiler.codegen.numpy._emit_op", fails)
    with pytest.raises(CompileError, match=r"tril_triu.*: no such part") as caught:
        compiled("tril_triu", {"X": (2, 2)}, "numpy", diagonal=0, lower=True)
    assert caught.value.source == LINE
