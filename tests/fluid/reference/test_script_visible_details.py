"""Small things that scripts see: kinds of errors, texts of tensors, methods of interpolation.

What is expected was asked of release 1.8.5.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError

layers = fluid.layers


@pytest.fixture(autouse=True)
def programs() -> Any:
    """Yield a main program of its own."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield main


def fed(*shape: int, dtype: str = "float32") -> Any:
    """Return a variable to feed."""
    name = fluid.unique_name.generate("x")
    return layers.data(name, list(shape), append_batch_size=False, dtype=dtype)


WRONG: list[tuple[type[Exception], Callable[[], Any]]] = [
    (TypeError, lambda: layers.matmul(np.ones((2, 3), "f4"), fed(3, 2))),
    (TypeError, lambda: layers.matmul(fed(2, 3, dtype="int32"), fed(3, 2, dtype="int32"))),
    (AssertionError, lambda: layers.matmul(fed(2, 3), fed(2, 3))),
    (ValueError, lambda: layers.matmul(fed(2, 3, 3), fed(3, 3, 3))),
    (TypeError, lambda: layers.split(fed(4, 6), 2.0)),
    (TypeError, lambda: layers.split(fed(4, 6), "2")),
    (TypeError, lambda: layers.split(fed(4, 6), 2, dim=1.5)),
    (IndexError, lambda: layers.split(fed(4, 6), 2, dim=2)),
    (IndexError, lambda: layers.split(fed(4, 6), [2, -1], dim=-3)),
    (AssertionError, lambda: layers.split(fed(4, 5), 2, dim=1)),
    (AssertionError, lambda: layers.split(fed(4, 5), [1] * 6, dim=1)),
    (fluid.core.EnforceNotMet, lambda: layers.split(fed(4, 5), [1, 2], dim=1)),
    (TypeError, lambda: layers.topk(np.ones((2, 2), "f4"), 1)),
    (fluid.core.EnforceNotMet, lambda: layers.topk(fed(2, 3), 0)),
    (ValueError, lambda: layers.expand(fed(2, 4, dtype="bool"), [1, 2])),
    *[(TypeError, lambda t=t: layers.assign(fed(2, dtype=t))) for t in ("uint8", "int8", "int16")],
    (TypeError, lambda: layers.data("y", [2.0, 3])),
    (TypeError, lambda: layers.data("y", ["2", 3])),
]


@pytest.mark.parametrize(("kind", "call"), WRONG, ids=range(len(WRONG)))
def test_wrong_arguments(kind: type[Exception], call: Callable[[], Any]) -> None:
    with pytest.raises(kind):
        call()


def test_an_asserted_shape_names_op_and_line() -> None:
    with pytest.raises(ShapeError, match=r"matmul: X .*\[2, 3\] and Y .*\[2, 3\]") as error:
        layers.matmul(fed(2, 3), fed(2, 3))
    assert "test_script_visible_details.py" in str(error.value)


@pytest.mark.parametrize("kind", ["bilinear_interp", "nearest_interp"])
@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_interpolation_depends_on_its_attribute(programs: Any, kind: str, method: str) -> None:
    block, x = programs.global_block(), fed(1, 1, 2, 2)
    out = block.create_var(name="out", dtype="float32")
    attrs = {"interp_method": method, "out_h": 3, "out_w": 3, "align_corners": True}
    block.append_op(kind, {"X": [x]}, {"Out": [out]}, attrs)
    inputs = np.arange(4, dtype="f4").reshape(1, 1, 2, 2)
    (result,) = fluid.Executor(fluid.CPUPlace()).run(programs, {x.name: inputs}, [out])
    nearest = [0, 1, 1, 2, 3, 3, 2, 3, 3]
    between = [0, 0.5, 1, 1, 1.5, 2, 2, 2.5, 3]
    assert result.ravel().tolist() == (nearest if method == "nearest" else between)


TEXTS = [
    (np.arange(6).reshape(2, 3).astype("f4") / 3, [[0, 1, 2]],
     "\tlod: {{0, 1, 2}}\n\tdim: 2, 3\n\tlayout: NCHW\n\tdtype: float\n"
     "\tdata: [0 0.333333 0.666667 1 1.33333 1.66667]\n"),
    (np.array([1e-8, 1e10, 123456.789]), [],
     "\tlod: {}\n\tdim: 3\n\tlayout: NCHW\n\tdtype: double\n\tdata: [1e-08 1e+10 123457]\n"),
    (np.array([1, -2]), [[0, 1], [0, 2]],
     "\tlod: {{0, 1}{0, 2}}\n\tdim: 2\n\tlayout: NCHW\n\tdtype: int64_t\n\tdata: [1 -2]\n"),
    (np.array([True, False]), [],
     "\tlod: {}\n\tdim: 2\n\tlayout: NCHW\n\tdtype: bool\n\tdata: [1 0]\n"),
    (np.array([3], "f2"), [],
     "\tlod: {}\n\tdim: 1\n\tlayout: NCHW\n\tdtype: ::paddle::platform::float16\n\tdata: [3]\n"),
    (np.array([3], "i2"), [],
     "\tlod: {}\n\tdim: 1\n\tlayout: NCHW\n\tdtype: int16_t\n\tdata: [3]\n"),
    (np.array([np.nan, np.inf], "f4"), [],
     "\tlod: {}\n\tdim: 2\n\tlayout: NCHW\n\tdtype: float\n\tdata: [nan inf]\n"),
]  # fmt: skip


def tensor_of(array: Any, lod: Any) -> Any:
    """Return a LoDTensor."""
    created = fluid.LoDTensor()
    created.set(array, fluid.CPUPlace())
    created.set_lod(lod)
    return created


@pytest.mark.parametrize(("array", "lod", "text"), TEXTS, ids=range(len(TEXTS)))
def test_a_tensor_as_text(array: Any, lod: Any, text: str) -> None:
    assert str(tensor_of(array, lod)) == text


def test_a_copy_of_a_tensor_is_its_own() -> None:
    tensor = tensor_of(np.ones((2, 1), "f4"), [[0, 2]])
    place = fluid.core.Place()
    place.set_place(fluid.CPUPlace())
    copied = tensor._copy(place)
    tensor.set(np.zeros((2, 1), "f4"), fluid.CPUPlace())
    assert copied.lod() == [[0, 2]]
    assert np.array(copied).tolist() == [[1], [1]]


def test_bits_of_float16() -> None:
    tensor = tensor_of(np.array([1.5, -2], np.float16).view(np.uint16), [])
    assert np.array(tensor).dtype == np.float16
    assert np.array(tensor).tolist() == [1.5, -2]


def masked(x: Any) -> Any:
    """Return the result and the mask of dropout."""
    layers.dropout(x, 0.5)
    created = fluid.default_main_program().global_block().ops[-1]
    return [created.output("Out")[0], created.output("Mask")[0]]


SHARED: list[tuple[Callable[[Any], Any], list[bool]]] = [
    (masked, [True, False]),
    (lambda x: [layers.huber_loss(x, x, 1.0), "huber_loss_0.tmp_0"], [True, False]),
    (lambda x: [layers.layer_norm(x), "layer_norm_0.tmp_0"], [True, False]),
    (lambda x: [layers.conv2d(layers.reshape(x, [3, 1, 1, 1]), 1, 1)], [True]),
    (lambda x: [layers.conv2d_transpose(layers.reshape(x, [3, 1, 1, 1]), 1, filter_size=1)], [False]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "shares"), SHARED, ids=range(len(SHARED)))
def test_results_that_share_sequences(call: Any, shares: list[bool]) -> None:
    with fluid.unique_name.guard():
        fetched = call(fluid.data("x", [3, 1], lod_level=1))
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    inputs = tensor_of(np.ones((3, 1), "f4"), [[0, 1, 3]])
    result = exe.run(feed={"x": inputs}, fetch_list=fetched, return_numpy=False)
    assert [each.lod() for each in result] == [[[0, 1, 3]] if share else [] for share in shares]


def test_restore_index_has_no_sequences_and_boxes_of_levels_have() -> None:
    boxes = fluid.data("boxes", [None, 4], lod_level=1)
    levels, restore = layers.distribute_fpn_proposals(boxes, 2, 3, 2, 20)
    inputs = tensor_of(np.array([[0, 0, 9, 9], [0, 0, 60, 60], [0, 0, 20, 20]], "f4"), [[0, 2, 3]])
    exe = fluid.Executor(fluid.CPUPlace())
    result = exe.run(feed={"boxes": inputs}, fetch_list=[*levels, restore], return_numpy=False)
    assert [each.lod() for each in result] == [[[0, 1, 2]], [[0, 1, 1]], []]
    assert [each.lod_level for each in (*levels, restore)] == [1, 1, 0]


def test_the_scale_of_a_sparse_gradient_is_sparse(programs: Any) -> None:
    rows = layers.embedding(fed(3, 1, dtype="int64"), [7, 2], is_sparse=True, param_attr="w")
    ((_, gradient),) = fluid.backward.append_backward(layers.mean(rows))
    sparse = fluid.core.VarDesc.VarType.SELECTED_ROWS
    assert gradient.type == sparse
    assert layers.scale(gradient, 2.0).type == sparse


def test_names_after_two_backward_passes_are_those_of_one() -> None:
    """A pass takes no number from the layers after it, whatever it calls its gradients."""
    names: list[list[str]] = []
    for passes in (1, 2):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [4, 3])
            loss = layers.mean(layers.fc(x, 2))
            for _ in range(passes):
                fluid.backward.append_backward(loss)
            layers.mean(layers.fc(x, 2))
        names.append(sorted(name for name in main.global_block().vars if "GRAD" not in name))
    layer = "b_0 tmp_0 tmp_1 w_0".split()
    fully_connected = [f"fc_{i}.{each}" for i in (0, 1) for each in layer]
    assert names == [[*fully_connected, "mean_0.tmp_0", "mean_1.tmp_0", "x"]] * 2
