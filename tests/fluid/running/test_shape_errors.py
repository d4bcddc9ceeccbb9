"""Sizes that only a feed decides, and that do not fit: the same error on every target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from compiler.errors import ShapeError

layers = fluid.layers
Build = Callable[[fluid.Variable], fluid.Variable]

IMAGES, ROWS = [-1, 8, 5, 5], [-1, 8]


def affine(x: fluid.Variable) -> fluid.Variable:
    scale, bias = (layers.create_parameter([8], "float32", name=each) for each in ("s", "b"))
    return layers.affine_channel(x, scale, bias)


def grouped(x: fluid.Variable) -> fluid.Variable:
    return layers.group_norm(x, 2, param_attr=fluid.ParamAttr(), bias_attr=fluid.ParamAttr())


CASES: dict[str, tuple[Build, list[int]]] = {
    "batch_norm": (layers.batch_norm, IMAGES),
    "batch_norm of running statistics": (lambda x: layers.batch_norm(x, is_test=True), IMAGES),
    "instance_norm": (layers.instance_norm, IMAGES),
    "group_norm": (grouped, IMAGES),
    "layer_norm": (layers.layer_norm, ROWS),
    "data_norm": (layers.data_norm, ROWS),
    "affine_channel": (affine, IMAGES),
    "row_conv": (lambda x: layers.row_conv(x, 2), [-1, 6, 8]),
    "bilinear_tensor_product": (lambda x: layers.bilinear_tensor_product(x, x, 4), ROWS),
    "fc": (lambda x: layers.fc(x, 4), ROWS),
}


def message(build: Build, shape: list[int]) -> str:
    """The error for a feed of 4 channels in a layer that was made for 8."""
    main, startup = fluid.Program(), fluid.Program()
    fed = [4 if size == 8 else abs(size) for size in shape]
    with (
        fluid.program_guard(main, startup), fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):  # fmt: skip
        fluid.data("any", [-1] * len(shape))
        out = build(fluid.data("x", shape))
        for op in main.global_block().ops:
            if "x" in op.input_arg_names:
                op._rename_input("x", "any")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        with pytest.raises(ShapeError) as raised:
            exe.run(main, {"any": np.ones(fed, "f4")}, [out])
    return str(raised.value)


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
@pytest.mark.parametrize("name", CASES)
def test_shape_errors_are_equal_on_all_targets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results: dict[str, str] = {}
    for target in ("numpy", "native"):
        monkeypatch.setenv("FLUID_TARGET", target)
        results[target] = message(*CASES[name])
    assert results["native"] == results["numpy"]
    assert "f32[1, 4" in results["native"] or ", 4]" in results["native"]
