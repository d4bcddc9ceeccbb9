"""Quantized programs of the reference: trained, tested, frozen for inference, as it ran them.

Recorded from Paddle 1.8.5: its passes quantized a small network three ways. `main` is the training
program, with parameters and state before and behind six steps; `test` what it was tested by; and
`frozen` the program for inference, whose weights are levels.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError

RECORDINGS = sorted((Path(__file__).parents[2] / "golden" / "quantized").glob("*.npz"))


def program(recorded: dict[str, np.ndarray], name: str) -> fluid.Program:
    return fluid.Program.parse_from_string(recorded[name].tobytes())


def parts(recorded: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in recorded.items() if k.startswith(prefix)}


def put(values: dict[str, np.ndarray]) -> None:
    for name, value in values.items():
        fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())


def close(got: Any, want: np.ndarray, what: str) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-3, atol=1e-4, err_msg=what)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_quantized_training_equals_the_reference_s(path: Path) -> None:
    train(path, fluid.CPUPlace())


@pytest.mark.device
@pytest.mark.parametrize("path", RECORDINGS[1:], ids=lambda path: path.stem)
def test_on_a_device(path: Path) -> None:
    pytest.importorskip("triton")
    train(path, fluid.CUDAPlace(0), most=2)


def train(path: Path, place: Any, most: int = 6) -> None:
    """Train and predict on a place, and hold all against the recording, or only the first steps."""
    recorded = dict(np.load(path))
    loss, predicted = recorded["names"].tolist()
    with fluid.scope_guard(fluid.Scope()):
        put(parts(recorded, "init."))
        exe, main = fluid.Executor(place), program(recorded, "main")
        for step, want in enumerate(recorded["losses"][:most]):
            feed = parts(recorded, f"feed{step}.")
            close(exe.run(main, feed, [loss])[0], want.reshape(1), f"loss of step {step}")
        put({} if most == 6 else parts(recorded, "final."))
        for name, want in parts(recorded, "final.").items():
            result = fluid.global_scope().find_var(name).get_tensor()
            close(result, want, name)
        feed = parts(recorded, "feed5.")
        (got,) = exe.run(program(recorded, "test"), feed, [predicted])
        close(got, recorded["tested"], "test")
        put(parts(recorded, "frozen."))
        (got,) = exe.run(program(recorded, "frozen"), feed, [predicted])
        close(got, recorded["predicted"], "inference")


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) == 3


def ranged(attrs: dict[str, Any], **inputs: list[Any]) -> None:
    """Run one op that quantizes by a window."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        block = main.global_block()
        x = fluid.data("x", [2, 3])
        scale = fluid.layers.fill_constant([1], "float32", 0.5)
        out = block.create_var(name="out", dtype="float32")
        outputs = {"Out": [out], "OutScale": [scale]}
        arguments = {"X": [x], "InScale": [scale], **inputs}
        block.append_op("fake_quantize_range_abs_max", arguments, outputs, attrs)
        feed = {"x": np.ones((2, 3), np.float32)}
        fluid.Executor(fluid.CPUPlace()).run(main, feed, [out])


def test_training_without_its_state_is_an_error() -> None:
    with pytest.raises(CompileError, match="Iter is missing"):
        ranged({})
    with pytest.raises(CompileError, match=r"bit_length.*expected 1 to 16"):
        ranged({"bit_length": 17, "is_test": True})


def test_quantizer_attributes_have_no_effect() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 3])
        out = fluid.layers.relu(x)
        notes = {"x_quant_scale": [0.5], "x.min": -1.0, "out_threshold": 2.0, "skip_quant": True}
        for name, value in notes.items():
            main.global_block().ops[-1]._set_attr(name, value)
        main = fluid.Program.parse_from_string(main.desc.serialize_to_string())
        feed = {"x": np.ones((2, 3), np.float32)}
        (got,) = fluid.Executor(fluid.CPUPlace()).run(main, feed, [out.name])
    assert got.tolist() == [[1.0] * 3] * 2


def test_rounding_has_a_straight_through_gradient() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        block = main.global_block()
        out, scale = (block.create_var(name=n, dtype="float32") for n in ("out", "scale"))
        block.append_op("fake_quantize_abs_max", {"X": [x]}, {"Out": [out], "OutScale": [scale]})
        assert fluid.gradients([fluid.layers.reduce_sum(out)], [x]) == [None]
