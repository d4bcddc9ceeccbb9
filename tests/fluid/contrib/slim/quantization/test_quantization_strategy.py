"""Quantization by a strategy of `Compressor`; results are those of release 1.8.5."""

import numpy as np
import pytest

import fluid
from tests.fluid.contrib.slim.compressions import CPU, X, Y, built, compressed


def test_results_are_those_of_the_reference(tmp_path) -> None:
    result = built()[2]["y"]
    folders = {name: tmp_path / name for name in ("float", "int8", "mobile")}
    paths = ", ".join(f"{name}_model_save_path: {path}" for name, path in folders.items())
    fields = (
        "start_epoch: 1, end_epoch: 2, activation_quantize_type: range_abs_max, "
        f"weight_quantize_type: abs_max, save_in_nodes: [img], save_out_nodes: [{result}], {paths}"
    )
    compressor, _ = compressed("QuantizationStrategy", fields, 3, tmp_path)
    compressor.run()
    results = compressor.context.eval_results
    assert results["acc"] == pytest.approx([0.5625, 0.6875, 0.625])
    assert results["loss"] == pytest.approx([1.008, 0.8323, 0.603], abs=2e-3)
    kinds = []
    for path in folders.values():
        scope, exe = fluid.Scope(), fluid.Executor(CPU)
        with fluid.scope_guard(scope):
            program, feeds, fetches = fluid.io.load_inference_model(
                str(path), exe, "model", "weights"
            )
            weight = next(n for n in scope.local_var_names() if n.startswith("s_conv2_weights"))
            kinds.append(np.array(scope.find_var(weight).get_tensor()).dtype.name)
            assert feeds == ["img"]
            if path.name == "float":
                (output,) = exe.run(program, {"img": X}, fetches)
                assert (output.argmax(1) == Y[:, 0]).mean() == results["acc"][-1]
    assert kinds == ["float32", "int8", "int8"]
