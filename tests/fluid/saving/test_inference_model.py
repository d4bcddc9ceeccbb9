"""Saving and loading of models for inference, and what missing and damaged files say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from compiler.ir.model_format.protobuf import parse
from runtime.errors import MissingTensorFile, OtherModel
from runtime.files.checkpoint import CheckpointError, load_tensor, save_tensor

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)
BIAS = np.array([0.5, -0.5], np.float32)
X = np.array([[1, 2, 3], [-4, 5, -6]], np.float32)
Y = np.maximum(X @ WEIGHT + BIAS, 0)


@pytest.fixture
def main(fresh_programs: Any) -> Any:
    """One layer, `y` = relu(x w + b), and the distance of its output from `label`."""
    program = fresh_programs[0]
    block = program.global_block()
    block.create_parameter(name="w", shape=[3, 2], dtype="float32")
    block.create_parameter(name="b", shape=[2], dtype="float32")
    block.create_var(name="rate", shape=[1], dtype="float32", persistable=True)
    for name, size in (("x", 3), ("label", 2)):
        block.create_var(name=name, shape=[-1, size], dtype="float32", is_data=True)
    for name in ("xw", "sum", "y", "distance"):
        block.create_var(name=name, dtype="float32")
    block.append_op("mul", {"X": "x", "Y": "w"}, {"Out": "xw"})
    block.append_op("elementwise_add", {"X": "xw", "Y": "b"}, {"Out": "sum"}, {"axis": 1})
    block.append_op("relu", {"X": "sum"}, {"Out": "y"})
    block.append_op("elementwise_sub", {"X": "y", "Y": "label"}, {"Out": "distance"})
    put(WEIGHT, BIAS)
    return program


def put(weight: np.ndarray, bias: np.ndarray) -> None:
    for name, value in {"w": weight, "b": bias, "rate": np.ones(1, np.float32)}.items():
        fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())


def forget() -> None:
    put(np.zeros_like(WEIGHT), np.zeros_like(BIAS))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save(main: Any, exe: Any, folder: Path, **options: Any) -> list[str]:
    y = main.global_block().var("y")
    return fluid.io.save_inference_model(folder, ["x"], [y], exe, main, **options)


def outputs(exe: Any, program: Any, names: list[str], fetches: list[Any]) -> np.ndarray:
    (value,) = exe.run(program, feed=dict.fromkeys(names, X), fetch_list=fetches)
    return value


def test_inference_model_round_trip(main: Any, exe: Any, tmp_path: Path):
    assert save(main, exe, tmp_path) == ["save_infer_model/scale_0.tmp_0"]
    assert files(tmp_path) == ["__model__", "b", "w"]
    with fluid.scope_guard(fluid.Scope()):
        loaded = fluid.io.load_inference_model(str(tmp_path), exe)
        assert isinstance(loaded, list)
        program, names, fetches = loaded
        assert (names, [var.name for var in fetches]) == (["x"], ["save_infer_model/scale_0.tmp_0"])
        np.testing.assert_allclose(outputs(exe, program, names, fetches), Y)
        assert fluid.global_scope().find_var("rate") is None


def test_saved_program_is_pruned_to_targets(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path)
    with fluid.scope_guard(fluid.Scope()):
        block = fluid.io.load_inference_model(tmp_path, exe)[0].global_block()
    types = [op.type for op in block.ops]
    assert types == ["feed", "mul", "elementwise_add", "relu", "scale", "fetch"]
    assert sorted(set(block.vars) - {"feed", "fetch"}) == sorted(
        ["x", "w", "xw", "b", "sum", "y", "save_infer_model/scale_0.tmp_0"]
    )
    assert __file__.encode() not in (tmp_path / "__model__").read_bytes()
    assert b"op_callstack" not in (tmp_path / "__model__").read_bytes()


def test_save_leaves_the_program_unchanged(main: Any, exe: Any, tmp_path: Path):
    before, version = str(main), main.version
    again = [save(main, exe, tmp_path / folder) for folder in ("one", "two")]
    assert again[0] == again[1]
    assert (str(main), main.version) == (before, version)
    one, two = [(tmp_path / folder / "__model__").read_bytes() for folder in ("one", "two")]
    assert one == two


def test_files_may_have_other_names(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path, model_filename="sub/model", params_filename="sub/params")
    assert files(tmp_path) == ["model", "params"]
    forget()
    names = {"model_filename": "model", "params_filename": "params"}
    np.testing.assert_allclose(
        outputs(exe, *fluid.io.load_inference_model(tmp_path, exe, **names)), Y
    )


def test_a_model_may_be_bytes(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path, params_filename="params")
    model, params = [(tmp_path / name).read_bytes() for name in ("__model__", "params")]
    forget()
    np.testing.assert_allclose(
        outputs(exe, *fluid.io.load_inference_model(None, exe, model, params)), Y
    )


def test_feeds_and_targets_keep_their_order(main: Any, exe: Any, tmp_path: Path):
    block = main.global_block()
    targets = [block.var("distance"), block.var("y"), block.var("sum")]
    names = fluid.io.save_inference_model(tmp_path, ["x", "label"], targets, exe, main)
    assert names == [f"save_infer_model/scale_{index}.tmp_0" for index in range(3)]
    program, feeds, fetches = fluid.io.load_inference_model(tmp_path, exe)
    assert feeds == ["x", "label"]
    assert [op.type for op in program.global_block().ops][:2] == ["feed", "feed"]
    result = exe.run(program, feed={"x": X, "label": Y}, fetch_list=fetches)
    np.testing.assert_allclose(result[0], np.zeros_like(Y))
    np.testing.assert_allclose(result[1], Y)


def test_single_names_and_variables_are_wrapped(main: Any, exe: Any, tmp_path: Path):
    y = main.global_block().var("y")
    assert len(fluid.io.save_inference_model(tmp_path, "x", y, exe)) == 1
    assert fluid.io.load_inference_model(tmp_path, exe)[1] == ["x"]


def test_a_loaded_model_can_be_saved_again(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path / "one")
    program, names, fetches = fluid.io.load_inference_model(tmp_path / "one", exe)
    again = fluid.io.save_inference_model(tmp_path / "two", names, fetches, exe, program)
    assert again == ["save_infer_model/scale_0.tmp_1"]
    np.testing.assert_allclose(
        outputs(exe, *fluid.io.load_inference_model(tmp_path / "two", exe)), Y
    )


def test_program_only_leaves_out_the_parameters(main: Any, exe: Any, tmp_path: Path):
    with pytest.warns(UserWarning, match="the parameters are not saved"):
        save(main, exe, tmp_path, program_only=True)
    assert files(tmp_path) == ["__model__"]


def test_the_whole_program_is_kept_where_it_is_not_for_deployment(
    main: Any, exe: Any, tmp_path: Path
):
    save(main, exe, tmp_path, export_for_deployment=False)
    assert files(tmp_path) == ["__model__.main_program", "b", "rate", "w"]
    (block,) = parse((tmp_path / "__model__.main_program").read_bytes()).values["blocks"]
    assert len(block.values["ops"]) == len(main.global_block().ops) + 1


def test_pserver_endpoints_replace_those_of_the_ops(main: Any, exe: Any, tmp_path: Path):
    block = main.global_block()
    slots = {"X": ["y"]}, {"Out": ["pulled"]}
    block.create_var(name="pulled", shape=[-1, 2], dtype="float32")
    block.add_op("elsewhere", *slots, {"epmap": ["old:1"], "op_role": 0})
    block.append_op("relu", {"X": "pulled"}, {"Out": block.create_var(name="z")})
    fluid.io.save_inference_model(tmp_path, ["x"], [block.var("z")], exe)
    program = fluid.io.load_inference_model(tmp_path, exe, pserver_endpoints=["new:2"])[0]
    results = [op for op in program.global_block().ops if op.type == "elsewhere"]
    assert [op.attr("epmap") for op in results] == [["new:2"]]


# ---- models for inference: bad input ----


@pytest.mark.parametrize("feeds", [[1], None, {"x": 1}])
def test_feeds_are_names(feeds: Any, main: Any, exe: Any, tmp_path: Path):
    y = main.global_block().var("y")
    with pytest.raises(ValueError, match="'feed_var_names' should be a list of str"):
        fluid.io.save_inference_model(tmp_path, feeds, [y], exe, main)


@pytest.mark.parametrize("targets", [["y"], None, [], "y"])
def test_targets_are_variables(targets: Any, main: Any, exe: Any, tmp_path: Path):
    with pytest.raises(ValueError, match="'target_vars' should be a list of Variable"):
        fluid.io.save_inference_model(tmp_path, ["x"], targets, exe, main)


def test_feeds_are_those_that_targets_read(main: Any, exe: Any, tmp_path: Path):
    y, distance = [main.global_block().var(name) for name in ("y", "distance")]
    with pytest.raises(ValueError, match="feed 'label': var label not in this block"):
        fluid.io.save_inference_model(tmp_path, ["x", "label"], [y], exe, main)
    with pytest.raises(ValueError, match=r"feed 'xx': var xx not in this block.* did you mean"):
        fluid.io.save_inference_model(tmp_path, ["xx"], [y], exe, main)
    with pytest.raises(ValueError, match="the targets need the data 'label'"):
        fluid.io.save_inference_model(tmp_path, ["x"], [distance], exe, main)
    assert files(tmp_path) == []


def test_a_model_that_reads_its_data_is_saved_without_the_reader(
    fresh_programs: Any, exe: Any, tmp_path: Path
):
    reader = fluid.layers.py_reader(4, [[-1, 3], [-1, 1]], ["float32", "float32"])
    x, label = fluid.layers.read_file(reader)
    loss = fluid.layers.mean(fluid.layers.fc(x, 1) - label)
    exe.run(fresh_programs[1])
    fluid.io.save_inference_model(str(tmp_path), [], [loss], exe)
    program, feeds, _ = fluid.io.load_inference_model(str(tmp_path), exe)
    assert feeds == [] and program.global_block().ops[0].type == "mul"
    assert [op.type for op in program.global_block().ops][-2:] == ["scale", "fetch"]


def test_a_target_of_another_program_is_named(main: Any, exe: Any, tmp_path: Path):
    other = fluid.Program().global_block().create_var(name="far", shape=[1], dtype="float32")
    with pytest.raises(ValueError, match="var far not in this block"):
        fluid.io.save_inference_model(tmp_path, [], [other], exe, main)


def not_loaded(exe: Any, folder: Any, *names: Any) -> tuple[type, str]:
    """What loading a model raises; the scope stays empty."""
    with (
        fluid.scope_guard(fluid.Scope()),
        pytest.raises((ValueError, OSError, RuntimeError)) as caught,
    ):
        try:
            fluid.io.load_inference_model(folder, exe, *names)
        finally:
            assert fluid.global_scope().names() == []
    return caught.type, str(caught.value)


def test_a_missing_folder_and_a_missing_model_are_named(main: Any, exe: Any, tmp_path: Path):
    kind, text = not_loaded(exe, tmp_path / "none")
    assert (kind, text) == (ValueError, f"there is no directory named '{tmp_path / 'none'}'")
    kind, text = not_loaded(exe, tmp_path)
    assert kind is FileNotFoundError
    assert f"there is no saved program {tmp_path / '__model__'}: " in text


def test_a_truncated_model_is_named(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path)
    whole = (tmp_path / "__model__").read_bytes()
    for length in (0, 1, 100, len(whole) // 2):
        (tmp_path / "__model__").write_bytes(whole[:length])
        kind, text = not_loaded(exe, tmp_path)
        assert kind is CompileError
        assert text.startswith(f"{tmp_path / '__model__'} is not a saved program: ")


def test_a_corrupt_model_is_named(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path)
    (tmp_path / "__model__").write_bytes(b"\x93NUMPY something else")
    kind, text = not_loaded(exe, tmp_path)
    assert kind is CompileError
    assert text.startswith(f"{tmp_path / '__model__'} is not a saved program: ")
    kind, text = not_loaded(exe, None, b"\x93NUMPY", b"")
    assert text.startswith("the bytes given is not a saved program: ")


def test_a_model_whose_parameters_do_not_fit_is_rejected(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path)
    save_tensor(tmp_path / "w", np.zeros((2, 3), np.float32))
    kind, text = not_loaded(exe, tmp_path)
    assert (kind, "(3, 2) in the program, but (2, 3) in" in text) == (OtherModel, True)
    (tmp_path / "w").write_bytes((tmp_path / "b").read_bytes()[:-1])
    kind, text = not_loaded(exe, tmp_path)
    assert (kind, text.startswith(str(tmp_path / "w"))) == (CheckpointError, True)
    (tmp_path / "w").unlink()
    assert not_loaded(exe, tmp_path)[0] is MissingTensorFile


def test_feed_and_fetch_ops_that_make_no_sense_are_named(main: Any, exe: Any, tmp_path: Path):
    program = main.clone()
    fluid.io.prepend_feed_ops(program, ["x", "label"])
    program.global_block().ops[0].attrs["col"] = 5
    save(program, exe, tmp_path, export_for_deployment=False)
    names = ("__model__.main_program", None)
    kind, text = not_loaded(exe, tmp_path, *names)
    assert (kind, "its feed ops have the columns [5, 0], not 0, 1" in text) == (CompileError, True)
    program.global_block().ops[0].attrs["col"] = 1
    program.global_block().ops[0].outputs["Out"] = []
    save(program, exe, tmp_path, export_for_deployment=False)
    assert "a feed op has [], not one variable" in not_loaded(exe, tmp_path, *names)[1]


def test_a_model_in_memory_needs_both_parts(exe: Any):
    kind, text = not_loaded(exe, None, b"model")
    assert (kind, "model_filename and params_filename must both be bytes" in text) == (
        ValueError,
        True,
    )


def test_the_files_are_those_of_single_tensors(main: Any, exe: Any, tmp_path: Path):
    save(main, exe, tmp_path)
    np.testing.assert_array_equal(load_tensor(tmp_path / "w")[0], WEIGHT)
    np.testing.assert_array_equal(load_tensor(tmp_path / "b")[0], BIAS)


# ---- files of later releases


def test_a_prefix_in_place_of_a_folder(main: Any, exe: Any, tmp_path: Path) -> None:
    names = {"model_filename": "net.v2.pdmodel", "params_filename": "net.v2.pdiparams"}
    save(main, exe, tmp_path, **names)
    forget()
    for name in ("net.v2", "net.v2.pdmodel"):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / name), exe)
        assert np.array_equal(outputs(exe, program, feeds, fetches), Y)
    forget()
    model = fluid.io.load_inference_model(str(tmp_path), exe, **names)
    assert np.array_equal(outputs(exe, *model), Y)
    (tmp_path / "net.v2.pdiparams").rename(tmp_path / "other")
    model = fluid.io.load_inference_model(str(tmp_path / "net.v2"), exe, params_filename="other")
    assert np.array_equal(outputs(exe, *model), Y)


def test_a_prefix_that_nothing_has(main: Any, exe: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no directory named '.*net'"):
        fluid.io.load_inference_model(str(tmp_path / "net"), exe)
    save(main, exe, tmp_path, model_filename="net.pdmodel")
    for name in ("net", "net.pdmodel"):
        with pytest.raises(FileNotFoundError, match=r"net\.pdiparams"):
            fluid.io.load_inference_model(str(tmp_path / name), exe)
    save(main, exe, tmp_path)
    with pytest.raises(ValueError, match="it is a file: give its folder, and its name as model_"):
        fluid.io.load_inference_model(str(tmp_path / "__model__"), exe)


def test_a_whole_program_keeps_its_parameters(main: Any, exe: Any, tmp_path: Path) -> None:
    save(main, exe, tmp_path, export_for_deployment=False)
    data = (tmp_path / "__model__.main_program").read_bytes()
    result = fluid.Program.parse_from_string(data)
    assert [param.name for param in result.all_parameters()] == ["w", "b"]
