"""`fluid.save` and `fluid.load`: the reference's files, ours, and what is refused whole."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.saving.state_file import dump_state, load_state
from runtime.errors import NotInitialized
from runtime.files.checkpoint import CheckpointError

GOLDEN = Path(__file__).parents[2] / "golden" / "state"


@pytest.fixture
def main(fresh_programs: Any, exe: Any) -> fluid.Program:
    """The model of the recorded files, begun."""
    x = fluid.data("x", [None, 3])
    loss = fluid.layers.mean(fluid.layers.batch_norm(fluid.layers.fc(x, 2)))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe.run(fresh_programs[1])
    return fresh_programs[0]


def state() -> dict[str, np.ndarray]:
    scope = fluid.global_scope()
    program = fluid.default_main_program()
    kept = [var.name for var in program.list_vars() if fluid.io.is_persistable(var)]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in kept}


def forget() -> None:
    for name, array in state().items():
        tensor = fluid.global_scope().find_var(name).get_tensor()
        tensor.set(np.zeros_like(array), fluid.CPUPlace())


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(found[name], array) for name, array in wanted.items())


def test_what_the_reference_saved(main: fluid.Program) -> None:
    fluid.load(main, str(GOLDEN / "model"))
    recorded = json.loads((GOLDEN / "values.json").read_text())
    results = {name: array.ravel()[:4].tolist() for name, array in state().items()}
    assert results == recorded


def test_the_reference_s_program_trains_on(main: fluid.Program, exe: Any) -> None:
    parsed = fluid.Program.parse_from_string((GOLDEN / "model.pdmodel").read_bytes())
    results = {param.name: param.trainable for param in parsed.all_parameters()}
    assert results == {param.name: param.trainable for param in main.all_parameters()}
    fluid.load(parsed, str(GOLDEN / "model.pdmodel"))
    feed = {"x": np.ones((4, 3), "float32")}
    before = state()
    exe.run(parsed, feed=feed)
    assert not same(state(), before)


def test_files_of_one_prefix(main: fluid.Program, tmp_path: Path) -> None:
    fluid.save(main, str(tmp_path / "new" / "model"))
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["model.pdmodel", "model.pdopt", "model.pdparams"]
    parts = [load_state((tmp_path / "new" / name).read_bytes(), name) for name in names[1:]]
    assert list(parts[1]) == [param.name for param in main.all_parameters()]
    assert {**parts[0], **parts[1]}.keys() == state().keys()
    wanted = state()
    for path in ("model", "model.pdparams", "model.pdopt", "model.pdmodel"):
        forget()
        fluid.load(main, str(tmp_path / "new" / path))
        assert same(state(), wanted)


def test_the_program_comes_back(main: fluid.Program, tmp_path: Path) -> None:
    fluid.save(main, str(tmp_path / "model"))
    parsed = fluid.Program.parse_from_string((tmp_path / "model.pdmodel").read_bytes())
    assert str(parsed) == str(main)
    assert [p.name for p in parsed.all_parameters()] == [p.name for p in main.all_parameters()]


def test_the_folder_of_save_params(main: fluid.Program, exe: Any, tmp_path: Path) -> None:
    fluid.io.save_params(exe, str(tmp_path))
    wanted = {param.name: state()[param.name] for param in main.all_parameters()}
    forget()
    fluid.load(main, str(tmp_path), exe)
    assert same(state(), wanted)
    assert same(fluid.load_program_state(str(tmp_path)), wanted)
    some = main.all_parameters()[:2]
    assert list(fluid.load_program_state(str(tmp_path), some)) == [param.name for param in some]
    (tmp_path / "other").write_bytes((tmp_path / "fc_0.b_0").read_bytes())
    with pytest.warns(UserWarning, match="the program has no use for: other"):
        fluid.load(main, str(tmp_path), exe)


def test_the_file_of_save_persistables(main: fluid.Program, exe: Any, tmp_path: Path) -> None:
    fluid.io.save_persistables(exe, str(tmp_path), filename="all")
    kept = [var for var in main.list_vars() if fluid.io.is_persistable(var)]
    wanted = state()
    forget()
    fluid.load(main, str(tmp_path / "all"), exe, kept)
    assert same(state(), wanted)
    assert same(fluid.load_program_state(str(tmp_path / "all"), kept), wanted)
    for refused in (
        lambda: fluid.load(main, str(tmp_path / "all"), exe),
        lambda: fluid.load_program_state(str(tmp_path / "all")),
    ):
        with pytest.raises(ValueError, match="has no names: pass the variables"):
            refused()
    stranger = fluid.Program().global_block().create_var(name="stranger", shape=[1])
    with pytest.raises(LookupError, match="'stranger' of var_list is not in the program"):
        fluid.load(main, str(tmp_path / "all"), exe, [stranger])
    with pytest.raises(TypeError, match="var_list holds Variables, but received str"):
        fluid.load(main, str(tmp_path / "all"), exe, ["fc_0.w_0"])


def test_variables_that_were_not_saved(main: fluid.Program, exe: Any, tmp_path: Path) -> None:
    """Release 1.8.5 raises RuntimeError, for a folder as for a single file."""
    fluid.io.save_persistables(exe, str(tmp_path / "folder"))
    fluid.io.save_persistables(exe, str(tmp_path), filename="all")
    kept = [var for var in main.list_vars() if fluid.io.is_persistable(var)]
    stranger = main.global_block().create_var(name="stranger", shape=[1], persistable=True)
    for variables in ([stranger], [*kept, stranger]):
        with pytest.raises(RuntimeError, match=r"there is no tensor file .*stranger") as missing:
            fluid.load_program_state(str(tmp_path / "folder"), variables)
        assert isinstance(missing.value, FileNotFoundError)
        with pytest.raises(RuntimeError, match=r"expected .* tensors"):
            fluid.load_program_state(str(tmp_path / "all"), variables)
        with pytest.raises(RuntimeError, match=r"expected .* tensors"):
            fluid.load(main, str(tmp_path / "all"), exe, variables)


def test_a_state_is_set(main: fluid.Program, tmp_path: Path) -> None:
    fluid.save(main, str(tmp_path / "model"))
    result = fluid.load_program_state(str(tmp_path / "model"))
    forget()
    fluid.set_program_state(main, result)
    assert same(state(), result)
    forget()
    fluid.set_program_state(main, {"fc_0.b_0": np.ones(2, "float32")})
    assert state()["fc_0.b_0"].tolist() == [1, 1]
    with pytest.warns(UserWarning, match="the program has no such variable: other"):
        fluid.set_program_state(main, {"other": np.ones(2)})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4), "float32"), r"is float32\[3, 2\], but the state has float32\[4, 4\]"),
        (np.zeros((3, 2)), r"is float32\[3, 2\], but the state has float64\[3, 2\]"),
    ],
)
def test_a_state_that_does_not_fit(main: fluid.Program, array: Any, message: str) -> None:
    before = state()
    changed = before | {"batch_norm_0.b_0": before["batch_norm_0.b_0"] + 1, "fc_0.w_0": array}
    with pytest.raises(AssertionError, match=message):
        fluid.set_program_state(main, changed)
    assert same(state(), before)


# ---- what is refused, and then nothing is lost


def test_nothing_is_saved_without_values(fresh_programs: Any, tmp_path: Path) -> None:
    fluid.layers.fc(fluid.data("x", [None, 3]), 2)
    with pytest.raises(NotInitialized, match=r"'fc_0\.w_0' has no value to save"):
        fluid.save(fresh_programs[0], str(tmp_path / "model"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AssertionError, match="run the startup program first"):
        fluid.set_program_state(fresh_programs[0], {})


def test_paths_that_name_no_file(main: fluid.Program, exe: Any, tmp_path: Path) -> None:
    for path in ("", f"{tmp_path}/"):
        with pytest.raises(AssertionError, match="MUST be dirname/file_prefix"):
            fluid.save(main, path)
    missing = str(tmp_path / "missing")
    with pytest.raises(ValueError, match="pass an executor"):
        fluid.load(main, missing)
    with pytest.raises(FileNotFoundError, match="there is neither"):
        fluid.load(main, missing, exe)
    with pytest.raises(FileNotFoundError, match="there is neither"):
        fluid.load_program_state(missing)
    with pytest.raises(TypeError, match=r"must be a fluid\.Executor"):
        fluid.load(main, missing, "cpu")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"fc_0.w_0": None}, AssertionError, r"Can not find 'fc_0\.w_0' in .*model\.pdparams"),
        ({"fc_0.w_0": np.zeros((2, 2), "float32")}, RuntimeError, r"but float32\[2, 2\] in .*"),
        ({"fc_0.w_0": np.zeros((3, 2))}, RuntimeError, r"but float64\[3, 2\] in .*pdparams"),
    ],
)
def test_parameters_that_do_not_fit(
    main: fluid.Program, tmp_path: Path, change: Any, error: type[Exception], message: str
) -> None:
    fluid.save(main, str(tmp_path / "model"))
    file = tmp_path / "model.pdparams"
    arrays = load_state(file.read_bytes(), "") | change
    file.write_bytes(dump_state({n: a for n, a in arrays.items() if a is not None}))
    forget()
    before = state()
    with pytest.raises(error, match=message):
        fluid.load(main, str(tmp_path / "model"))
    assert same(state(), before)


def test_files_that_are_damaged_or_gone(main: fluid.Program, tmp_path: Path) -> None:
    fluid.save(main, str(tmp_path / "model"))
    before = state()
    (tmp_path / "model.pdopt").write_bytes(b"xxxx")
    with pytest.raises(CheckpointError, match=r"model\.pdopt is not a file of named arrays"):
        fluid.load(main, str(tmp_path / "model"))
    (tmp_path / "model.pdopt").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*model\.pdopt, but 'batch_norm_0"):
        fluid.load(main, str(tmp_path / "model"))
    assert same(state(), before)
