"""Surprising behaviour of the reference, and what happens here instead, case by case.

Each test states what 1.8.5 does. Parameter servers, fleets, several devices and memory_optimize are
tested elsewhere.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.framework import Program
from runtime.errors import FeedError, NotInitialized

pytestmark = pytest.mark.usefixtures("fresh_programs")
X = np.ones((4, 3), "float32")


def net() -> fluid.Variable:
    return fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 2))


def ready(exe: Any) -> fluid.Variable:
    result = net()
    exe.run(fluid.default_startup_program())
    return result


# ---- feeds and fetches


def test_feeds_of_a_wrong_type_are_rejected(exe: Any) -> None:
    """In a data-parallel run the reference silently takes the feed of the run before."""
    mean = ready(exe)
    exe.run(feed={"x": X}, fetch_list=[mean])
    with pytest.raises(TypeError, match="feed must be a dict from names to arrays, not str"):
        exe.run(feed="x", fetch_list=[mean])
    with pytest.raises(FeedError, match=r"missing feed: 'x' \(float32 of shape \(-1, 3\)\)"):
        exe.run(feed=None, fetch_list=[mean])


def test_a_feed_of_another_element_type_is_rejected_at_once(exe: Any) -> None:
    """The reference fails deep inside the first op that reads it."""
    mean = ready(exe)
    with pytest.raises(
        FeedError, match="feed 'x' must be float32, but float64 was given"
    ) as caught:
        exe.run(feed={"x": X.astype("float64")}, fetch_list=[mean])
    assert "x.astype('float32')" in str(caught.value)
    assert isinstance(caught.value, ValueError | fluid.core.EnforceNotMet)


def test_a_feed_of_another_shape_is_rejected_at_once(exe: Any) -> None:
    """`layers.data` is not checked in the reference, `fluid.data` is."""
    mean = ready(exe)
    with pytest.raises(ValueError, match=r"feed 'x' must have the shape \(-1, 3\), but \(4, 2\)"):
        exe.run(feed={"x": X[:, :2]}, fetch_list=[mean])


def test_uninitialised_state_is_named(exe: Any) -> None:
    """The reference reports that a tensor holds no memory, and hints at the order of startup."""
    mean = net()
    with pytest.raises(NotInitialized, match=r"'fc_0\.w_0' is not initialised") as caught:
        exe.run(feed={"x": X}, fetch_list=[mean])
    assert "run the startup program first" in str(caught.value)


def test_a_fetch_that_there_is_not(exe: Any) -> None:
    """The reference raises EnforceNotMet out of its fetch op."""
    ready(exe)
    message = r"fetch 'mean_0\.tmp' is not a variable the program computes"
    with pytest.raises(fluid.core.EnforceNotMet, match=message) as caught:
        exe.run(feed={"x": X}, fetch_list=["mean_0.tmp"])
    assert "did you mean 'mean_0.tmp_0'?" in str(caught.value)


# ---- programs


def test_a_loss_that_the_program_has_not() -> None:
    """The reference takes any name for the loss of a CompiledProgram."""
    net()
    program = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(ValueError, match=r"no variable 'mean_0\.tmp' in the program; did"):
        program.with_data_parallel(loss_name="mean_0.tmp")


def test_compiling_leaves_a_loaded_program_as_it_is(exe: Any, tmp_path: Path) -> None:
    """The reference takes the feed ops out of the caller's program."""
    mean = ready(exe)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [mean], exe)
    program, _, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    before = str(program)
    compiled = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(1))
    exe.run(compiled, feed={"x": X}, fetch_list=fetches)
    assert str(program) == before


def test_saving_a_model_leaves_the_program_as_it_is(exe: Any, tmp_path: Path) -> None:
    """The reference appends a `scale` at every call, and calls the results otherwise."""
    mean = ready(exe)
    before = str(fluid.default_main_program())
    names = [fluid.io.save_inference_model(str(tmp_path), ["x"], [mean], exe) for _ in range(2)]
    assert names == [["save_infer_model/scale_0.tmp_0"]] * 2
    assert str(fluid.default_main_program()) == before


def test_saved_programs_do_not_contain_folders(exe: Any, tmp_path: Path) -> None:
    """The reference writes the call stack of every op, and with it the user's paths."""
    mean = ready(exe)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [mean], exe)
    fluid.save(fluid.default_main_program(), str(tmp_path / "whole"))
    for name in ("__model__", "whole.pdmodel"):
        data = (tmp_path / name).read_bytes()
        assert b"op_callstack" not in data
        assert b"test_surprises" not in data


def test_parameters_of_a_parsed_program() -> None:
    """The reference returns plain variables, so that nothing can be trained."""
    net()
    parsed = Program.parse_from_string(fluid.default_main_program().desc.serialize_to_string())
    assert [param.name for param in parsed.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_name_prefix_applies_to_generated_names() -> None:
    """As in the reference: files of checkpoints have these names."""
    with fluid.unique_name.guard("D/"):
        mean = net()
    assert mean.name == "D/D/mean_0.tmp_0"
    assert [param.name for param in fluid.default_main_program().all_parameters()] == [
        "D/D/fc_0.w_0",
        "D/D/fc_0.b_0",
    ]


def test_layers_of_one_shape_have_different_seeds(exe: Any) -> None:
    """Under a fixed seed they do in the reference."""
    fluid.default_startup_program().random_seed = 3
    x = fluid.layers.data("x", [3])
    fluid.layers.fc(fluid.layers.fc(x, 3), 3)
    exe.run(fluid.default_startup_program())
    first, second = (
        np.array(fluid.global_scope().find_var(name).get_tensor())
        for name in ("fc_0.w_0", "fc_1.w_0")
    )
    assert not np.array_equal(first, second)


def test_the_clip_of_one_parameter_is_not_forgotten() -> None:
    """The reference skips all clipping where the first parameter has none."""
    mean = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 2))
    clip = fluid.clip.GradientClipByValue(0.1)
    fluid.clip.set_gradient_clip(clip, param_list=["fc_0.b_0"])
    fluid.optimizer.SGD(0.1).minimize(mean)
    ops = fluid.default_main_program().global_block().ops
    assert [op.input("X") for op in ops if op.type == "clip"] == [["fc_0.b_0@GRAD"]]


# ---- files


def test_a_file_of_another_shape_sets_nothing(exe: Any, tmp_path: Path) -> None:
    """The reference sets the parameters before the one that does not fit."""
    ready(exe)
    fluid.io.save_params(exe, str(tmp_path))
    scope = fluid.global_scope()
    bias = scope.find_var("fc_0.b_0").get_tensor()
    bias.set(np.full(2, 7, "float32"), fluid.CPUPlace())
    weight = fluid.default_main_program().global_block().var("fc_0.w_0")
    weight.dims = (3, 5)
    with pytest.raises(RuntimeError, match=r"'fc_0\.w_0' has the shape \(3, 5\) in the program"):
        fluid.io.load_params(exe, str(tmp_path))
    assert np.array(bias).tolist() == [7, 7]


def test_nothing_in_a_file_is_called(tmp_path: Path) -> None:
    """The reference unpickles `.pdparams`, which may run anything."""
    call = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
    (tmp_path / "model.pdparams").write_bytes(call)
    with pytest.raises(
        ValueError, match=r"model\.pdparams is not a file of named arrays.*os\.system"
    ):
        fluid.load_program_state(str(tmp_path / "model"))


# ---- readers and surroundings


def test_an_error_of_a_generator_is_the_user_s_own(exe: Any) -> None:
    """The reference reports that a blocking queue was killed."""
    x = fluid.data("x", [None, 3])
    loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)

    def batches() -> Any:
        yield [X]
        raise KeyError("no such sample")

    loader.set_batch_generator(batches)
    doubled = fluid.layers.scale(x, 2.0)
    loader.start()
    exe.run(fetch_list=[doubled])
    with pytest.raises(KeyError, match="no such sample"):
        exe.run(fetch_list=[doubled])


def test_a_reader_that_is_not_started(exe: Any) -> None:
    """The reference waits for ever."""
    x = fluid.data("x", [None, 3])
    loader = fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
    loader.set_batch_generator(lambda: [[X]])
    doubled = fluid.layers.scale(x, 2.0)
    with pytest.raises(RuntimeError, match=r"the reader of x is not started: call its start\(\)"):
        exe.run(fetch_list=[doubled])


@pytest.mark.parametrize(
    ("step", "power", "reference"),
    [(lambda s, x: s * x, (32, 108), (16, 81)), (lambda s, _: s * s, (1024, 17496), (0, 0))],
)
def test_gradients_of_loops(exe: Any, step: Any, power: Any, reference: Any) -> None:
    """Three passes from s = x: in the reference a part of the gradient is missing."""
    x = fluid.data("x", [2])
    x.stop_gradient = False
    i, end = (fluid.layers.fill_constant([1], "int64", number) for number in (0, 3))
    body = [i, fluid.layers.scale(x, 1.0)]
    _, last = fluid.layers.while_loop(
        lambda i, _: fluid.layers.less_than(i, end), lambda i, s: [i + 1, step(s, x)], body
    )
    (slope,) = fluid.gradients(fluid.layers.reduce_sum(last), x)
    (value,) = exe.run(feed={"x": np.array([2, 3], "float32")}, fetch_list=[slope])
    assert tuple(value) == power != reference
