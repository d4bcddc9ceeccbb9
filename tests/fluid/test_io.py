"""Saving and loading of variables, and what missing and damaged files say."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from runtime.errors import MissingTensorFile, NotInitialized, OtherModel
from runtime.files.checkpoint import CheckpointError, load_combined, save_tensor

SIGNATURES = {
    "save_vars": "executor, dirname, main_program=None, vars=None, predicate=None, filename=None",
    "save_params": "executor, dirname, main_program=None, filename=None",
    "save_persistables": "executor, dirname, main_program=None, filename=None",
    "load_vars": "executor, dirname, main_program=None, vars=None, predicate=None, filename=None",
    "load_params": "executor, dirname, main_program=None, filename=None",
    "load_persistables": "executor, dirname, main_program=None, filename=None",
    "save_inference_model": "dirname, feeded_var_names, target_vars, executor, main_program=None, "
    "model_filename=None, params_filename=None, export_for_deployment=True, program_only=False",
    "load_inference_model": "dirname, executor, model_filename=None, params_filename=None, "
    "pserver_endpoints=None",
    "get_program_parameter": "program",
    "get_program_persistable_vars": "program",
    "prepend_feed_ops": "inference_program, feed_target_names, feed_holder_name='feed'",
    "append_fetch_ops": "inference_program, fetch_target_names, fetch_holder_name='fetch'",
}
VALUES = {
    "w": np.arange(6, dtype=np.float32).reshape(3, 2),
    "b": np.array([0.5, -0.5], np.float32),
    "rate": np.array([0.125], np.float32),
    "steps": np.array([7], np.int64),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_the_reference(name: str):
    result = inspect.signature(getattr(fluid.io, name)).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in result]
    assert ", ".join(map(str, bare)) == SIGNATURES[name]


# ---- a program with values ----


@pytest.fixture
def main(fresh_programs: Any) -> Any:
    """A program with two parameters and an optimizer's rate and counter, all of them set."""
    program = fresh_programs[0]
    block = program.global_block()
    block.create_parameter(name="w", shape=[3, 2], dtype="float32")
    block.create_parameter(name="b", shape=[2], dtype="float32")
    block.create_var(name="rate", shape=[1], dtype="float32", persistable=True)
    block.create_var(name="steps", shape=[1], dtype="int64", persistable=True)
    put(VALUES)
    return program


def put(values: dict[str, np.ndarray]) -> None:
    for name, value in values.items():
        fluid.global_scope().var(name).get_tensor().set(value, fluid.CPUPlace())


def seen(*names: str) -> dict[str, np.ndarray]:
    scope = fluid.global_scope()
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def zeros() -> dict[str, np.ndarray]:
    return {name: np.zeros_like(value) for name, value in VALUES.items()}


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return all(
        found[name].dtype == value.dtype and np.array_equal(found[name], value)
        for name, value in wanted.items()
    )


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


# ---- variables ----


def test_persistables_go_to_a_file_each_and_come_back(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_persistables(exe, str(tmp_path / "new" / "folder"), main)
    assert files(tmp_path / "new" / "folder") == ["b", "rate", "steps", "w"]
    put(zeros())
    fluid.io.load_persistables(exe, str(tmp_path / "new" / "folder"), main)
    assert same(seen(*VALUES), VALUES)


def test_a_filename_puts_all_into_one_file_by_name(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_persistables(exe, tmp_path, main, filename="all")
    assert files(tmp_path) == ["all"]
    assert same({n: t[0] for n, t in load_combined(tmp_path / "all", VALUES).items()}, VALUES)
    put(zeros())
    fluid.io.load_persistables(exe, tmp_path, main, filename="all")
    assert same(seen(*VALUES), VALUES)


def test_without_folder_and_file_variables_are_bytes(main: Any, exe: Any, tmp_path: Path):
    data = fluid.io.save_persistables(exe, None, main)
    fluid.io.save_persistables(exe, tmp_path, main, filename="all")
    assert data == (tmp_path / "all").read_bytes()
    put(zeros())
    fluid.io.load_persistables(exe, None, main, filename=data)
    assert same(seen(*VALUES), VALUES)


def test_params_are_what_optimizers_update(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    assert files(tmp_path) == ["b", "w"]
    put(zeros())
    fluid.io.load_params(exe, tmp_path, main)
    assert same(seen(*VALUES), zeros() | {name: VALUES[name] for name in "wb"})
    assert [var.name for var in fluid.io.get_program_parameter(main)] == ["w", "b"]
    listed = [var.name for var in fluid.io.get_program_persistable_vars(main)]
    assert listed == ["w", "b", "rate", "steps"]


def test_vars_may_be_listed_or_chosen_in_the_default_program(main: Any, exe: Any, tmp_path: Path):
    block = main.global_block()
    fluid.io.save_vars(exe, tmp_path / "list", vars=[block.var("w"), block.var("rate")])
    assert files(tmp_path / "list") == ["rate", "w"]
    fluid.io.save_vars(exe, tmp_path / "chosen", predicate=lambda var: var.name == "steps")
    assert files(tmp_path / "chosen") == ["steps"]
    put(zeros())
    fluid.io.load_vars(exe, tmp_path / "list", vars=[block.var("rate")])
    fluid.io.load_vars(exe, tmp_path / "chosen", predicate=lambda var: var.name == "steps")
    assert same(seen(*VALUES), zeros() | {name: VALUES[name] for name in ("rate", "steps")})


def test_lod_and_names_with_folders_are_kept(main: Any, exe: Any, tmp_path: Path):
    var = main.global_block().create_var(name="a/b", shape=[-1, 1], dtype="int64", persistable=True)
    tensor = fluid.create_lod_tensor(np.arange(5).reshape(5, 1), [[2, 3]], fluid.CPUPlace())
    held = fluid.global_scope().var("a/b").get_tensor()
    held.set(np.asarray(tensor), fluid.CPUPlace())
    held.set_lod(tensor.lod())
    fluid.io.save_vars(exe, tmp_path, vars=[var])
    assert files(tmp_path) == ["a/b"]
    held.set_lod([])
    put({"a/b": np.zeros((2, 1), np.int64)})
    fluid.io.load_vars(exe, tmp_path, vars=[var])
    assert (held.lod(), seen("a/b")["a/b"].ravel().tolist()) == ([[0, 2, 5]], [0, 1, 2, 3, 4])


def test_values_are_set_where_they_are(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    tensor = fluid.global_scope().find_var("w").get_tensor()
    before = tensor.array
    fluid.io.load_params(exe, tmp_path, main)
    assert tensor.array is before


def test_loading_makes_what_the_scope_does_not_have(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_params(exe, tmp_path, main)
        assert same(seen("w", "b"), {name: VALUES[name] for name in "wb"})
        assert fluid.global_scope().find_var("rate") is None


def test_raw_variables_are_passed_over(main: Any, exe: Any, tmp_path: Path):
    raw = fluid.core.VarDesc.VarType.RAW
    var = main.global_block().create_var(name="reader", type=raw, persistable=True)
    fluid.io.save_vars(exe, tmp_path, vars=[var, main.global_block().var("b")])
    assert files(tmp_path) == ["b"]


def test_nothing_to_save_is_a_warning(fresh_programs: Any, exe: Any, tmp_path: Path):
    with pytest.warns(UserWarning, match="no variable to save"):
        assert fluid.io.save_params(exe, tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


# ---- variables: bad input ----


def test_a_variable_without_a_value_stops_the_saving_before_it_starts(
    main: Any, exe: Any, tmp_path: Path
):
    (tmp_path / "b").write_bytes(b"older")
    main.global_block().create_parameter(name="unset", shape=[1], dtype="float32")
    with pytest.raises(NotInitialized, match="variable 'unset' has no value to save") as caught:
        fluid.io.save_persistables(exe, tmp_path, main)
    assert "run the startup program" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert (files(tmp_path), (tmp_path / "b").read_bytes()) == (["b"], b"older")


@pytest.mark.parametrize("call", [fluid.io.save_params, fluid.io.load_params])
def test_arguments_of_another_kind_are_named(call: Any, main: Any, exe: Any, tmp_path: Path):
    with pytest.raises(TypeError, match=r"executor must be a fluid\.Executor, but received str"):
        call("cpu", tmp_path, main)
    with pytest.raises(TypeError, match=r"main_program must be a fluid\.Program, but .* str"):
        call(exe, tmp_path, "main")


@pytest.mark.parametrize("call", [fluid.io.save_vars, fluid.io.load_vars])
def test_vars_are_variables(call: Any, main: Any, exe: Any, tmp_path: Path):
    with pytest.raises(TypeError, match="vars must be Variables, but received str"):
        call(exe, tmp_path, main, vars=["w"])


def test_loading_needs_a_place_to_load_from(main: Any, exe: Any):
    with pytest.raises(ValueError, match="dirname and filename cannot both be None"):
        fluid.io.load_params(exe, None, main)
    with pytest.raises(TypeError, match="without dirname, filename is bytes, but received str"):
        fluid.io.load_params(exe, None, main, "params")


def refused(exe: Any, folder: Any, main: Any, filename: Any = None) -> tuple[type, str]:
    """What loading parameters raises; the scope is as it was."""
    put(zeros())
    with pytest.raises((ValueError, OSError, RuntimeError)) as caught:
        fluid.io.load_params(exe, folder, main, filename)
    assert same(seen(*VALUES), zeros())
    return caught.type, str(caught.value)


def test_a_missing_file_is_named(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    (tmp_path / "b").unlink()
    kind, text = refused(exe, tmp_path, main)
    assert (kind, str(tmp_path / "b") in text) == (MissingTensorFile, True)
    kind, text = refused(exe, tmp_path, main, "all")
    assert (kind, str(tmp_path / "all") in text) == (MissingTensorFile, True)


def test_a_truncated_file_is_named(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    whole = (tmp_path / "b").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        kind, text = refused(exe, tmp_path, main)
        assert kind is CheckpointError
        assert text.startswith(f"{tmp_path / 'b'}, byte ")


def test_a_corrupt_file_is_named(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    (tmp_path / "b").write_bytes(b"\xff" * 40)
    kind, text = refused(exe, tmp_path, main)
    assert (kind, text.startswith(f"{tmp_path / 'b'}, byte 4: expected LoD version 0")) == (
        CheckpointError,
        True,
    )


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data + b"\0"])
def test_a_damaged_combined_file_is_named(damage: Any, main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main, "all")
    whole = (tmp_path / "all").read_bytes()
    (tmp_path / "all").write_bytes(damage(whole))
    kind, text = refused(exe, tmp_path, main, "all")
    assert (kind, text.startswith(str(tmp_path / "all"))) == (CheckpointError, True)
    kind, text = refused(exe, None, main, damage(whole))
    assert (kind, text.startswith("the bytes given")) == (CheckpointError, True)


def test_a_combined_file_of_other_variables_is_rejected(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_persistables(exe, tmp_path, main, "all")
    kind, text = refused(exe, tmp_path, main, "all")
    assert (kind, "expected 2 tensors, given 4" in text) == (OtherModel, True)


def test_another_shape_is_rejected_with_both(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    save_tensor(tmp_path / "w", np.zeros((3, 4), np.float32))
    kind, text = refused(exe, tmp_path, main)
    assert kind is OtherModel and issubclass(kind, CheckpointError)
    assert f"'w' has the shape (3, 2) in the program, but (3, 4) in {tmp_path / 'w'}" in text
    save_tensor(tmp_path / "w", np.zeros(6, np.float32))
    assert "(3, 2) in the program, but (6,) in" in refused(exe, tmp_path, main)[1]


def test_another_element_type_is_rejected_with_both(main: Any, exe: Any, tmp_path: Path):
    fluid.io.save_params(exe, tmp_path, main)
    save_tensor(tmp_path / "w", VALUES["w"].astype(np.float64))
    kind, text = refused(exe, tmp_path, main)
    assert kind is OtherModel and issubclass(kind, CheckpointError)
    assert f"'w' is float32 in the program, but float64 in {tmp_path / 'w'}" in text


def test_state_that_ops_write_may_be_saved_in_another_shape(exe: Any, tmp_path: Path):
    """As in release 1.8.5, where the statistics of `auc` have the shape that the op gives them."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        block = main.global_block()
        bank = block.create_var(name="bank", shape=[2], dtype="float32", persistable=True)
        total = fluid.layers.reduce_sum(bank)
        fluid.layers.assign(bank + 1.0, bank)
        tensor = fluid.global_scope().var("bank").get_tensor()
        tensor.set(np.ones((1, 3), np.float32), fluid.CPUPlace())
        fluid.io.save_persistables(exe, tmp_path / "folder", main)
        fluid.save(main, str(tmp_path / "state"))
        for load in (
            lambda: fluid.io.load_persistables(exe, tmp_path / "folder", main),
            lambda: fluid.load(main, str(tmp_path / "state")),
        ):
            tensor.set(np.zeros(2, np.float32), fluid.CPUPlace())
            load()
            assert exe.run(main, fetch_list=[total])[0].tolist() == [3]
