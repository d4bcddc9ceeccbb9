"""Ops that save and load within programs, and programs of others that must not do so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid.layers import files
from runtime.errors import CheckpointError, FileAccessError
from runtime.files.checkpoint import load_tensor, save_tensor

layers = fluid.layers
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def block(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield the block of a main program of its own, in a scope of its own."""
    monkeypatch.delenv("FLUID_MODEL_FILES", raising=False)
    program = fluid.Program()
    with (
        fluid.program_guard(program, fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield program.global_block()


def run(program: Any, feed: Any = None, *fetches: Any, **options: Any) -> list[Any]:
    """Run a program."""
    return fluid.Executor(fluid.CPUPlace()).run(program, feed, list(fetches), **options)


def saving(block: Any, path: Path, var: Any, **attrs: Any) -> None:
    """Append an op that saves a variable."""
    block.append_op("save", {"X": [var]}, {}, {"file_path": str(path), **attrs})


def loading(block: Any, path: Path, **attrs: Any) -> Any:
    """Append an op that loads a variable; returns that."""
    out = block.create_var(name="loaded", dtype="float32", shape=[-1, 3])
    block.append_op("load", {}, {"Out": [out]}, {"file_path": str(path), **attrs})
    return out


def test_save_and_load_ops_round_trip(block: Any, tmp_path: Path) -> None:
    x = fluid.data("x", [None, 3])
    saving(block, tmp_path / "in" / "doubled", layers.scale(x, 2.0))
    out = layers.scale(loading(block, tmp_path / "in" / "doubled"), 10.0)
    result = run(block.program, {"x": ROWS}, out, x, "loaded")
    np.testing.assert_array_equal(result[0], 20 * ROWS)
    np.testing.assert_array_equal(result[1], ROWS)
    np.testing.assert_array_equal(result[2], load_tensor(tmp_path / "in" / "doubled")[0])


def test_sequences_keep_their_lengths(block: Any, tmp_path: Path) -> None:
    x = fluid.data("x", [None, 3], lod_level=1)
    saving(block, tmp_path / "x", x)
    out = layers.sequence_pool(loading(block, tmp_path / "x"), "sum")
    feed = {"x": fluid.create_lod_tensor(ROWS, [[2]], fluid.CPUPlace())}
    result = run(block.program, feed, out, "loaded", return_numpy=False)
    np.testing.assert_array_equal(np.asarray(result[0]), [ROWS.sum(axis=0)])
    assert result[1].recursive_sequence_lengths() == [[2]]


def test_state_is_loaded_into_the_scope(block: Any, tmp_path: Path) -> None:
    save_tensor(tmp_path / "w", ROWS)
    w = layers.create_global_var([2, 3], 0.0, "float32", persistable=True, name="w")
    layers.load(w, str(tmp_path / "w"))
    out = layers.scale(w, 2.0)
    np.testing.assert_array_equal(run(block.program, None, out)[0], 2 * ROWS)
    np.testing.assert_array_equal(fluid.global_scope().find_var("w").get_tensor(), ROWS)


def test_many_in_one_file_keep_the_order_of_the_op(block: Any, tmp_path: Path) -> None:
    b, a = (layers.fill_constant([n], "float32", float(n)) for n in (2, 1))
    about = {"file_path": str(tmp_path / "both")}
    block.append_op("save_combine", {"X": [b, a]}, {}, about)
    outs = [block.create_var(name=name, dtype="float32", shape=[-1]) for name in "yx"]
    block.append_op("load_combine", {}, {"Out": outs}, about)
    assert [each.tolist() for each in run(block.program, None, *outs)] == [[2, 2], [1]]


@pytest.mark.parametrize("side", ["save_as_fp16", "load_as_fp16"])
def test_two_bytes_where_asked(block: Any, tmp_path: Path, side: str) -> None:
    x = fluid.data("x", [None, 3])
    saving(block, tmp_path / "x", x, **({side: True} if side == "save_as_fp16" else {}))
    loading(block, tmp_path / "x", **({side: True} if side == "load_as_fp16" else {}))
    (result,) = run(block.program, {"x": ROWS}, "loaded")
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, ROWS)


def test_a_part_of_a_tensor(block: Any, tmp_path: Path) -> None:
    save_tensor(tmp_path / "x", ROWS)
    loading(block, tmp_path / "x", seek=2, shape=[1, 3])
    assert run(block.program, None, "loaded")[0].tolist() == [[2, 3, 4]]
    loading(block, tmp_path / "x", seek=4, shape=[1, 3])
    with pytest.raises(FileAccessError, match=r"reads \[1, 3\] from element 4 of only 6"):
        run(block.program, None, "loaded")


def test_a_file_that_is_there_may_be_kept(block: Any, tmp_path: Path) -> None:
    saving(block, tmp_path / "x", layers.ones([1], "float32"), overwrite=False)
    run(block.program)
    with pytest.raises(FileAccessError, match="must not replace an existing file"):
        run(block.program)


def test_a_file_that_is_missing_or_no_tensor(block: Any, tmp_path: Path) -> None:
    loading(block, tmp_path / "x")
    with pytest.raises(FileAccessError, match=r"load on the file .* finds no such file"):
        run(block.program)
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        run(block.program)


def test_tensors_kept_in_memory_are_not_supported(block: Any) -> None:
    attrs = {"file_path": "x", "model_from_memory": True}
    out = block.create_var(name="out", dtype="float32", shape=[1])
    block.append_op("load_combine", {}, {"Out": [out]}, attrs)
    with pytest.raises(FileAccessError, match="to memory, which is not supported"):
        run(block.program)


# ---- programs of others

DECODED = {
    "parsed": lambda program: fluid.Program.parse_from_string(program.desc.serialize_to_string()),
    "cloned": lambda program: DECODED["parsed"](program).clone(),
    "copied twice": lambda program: DECODED["cloned"](program).copied(),
    "pruned": lambda program: DECODED["parsed"](program)._prune_with_input([], ["y"]),
    "compiled": lambda program: fluid.CompiledProgram(DECODED["parsed"](program)),
    "optimized": lambda program: optimized(DECODED["parsed"](program)),
}


def optimized(program: Any) -> Any:
    """Return a program that shares memory among its variables."""
    fluid.memory_optimize(program)
    return program


def secret(block: Any, path: Path) -> Any:
    """Record a program that reads a file and computes with it."""
    save_tensor(path, ROWS)
    out = block.create_var(name="y", dtype="float32", shape=[-1, 3])
    block.append_op("scale", {"X": [loading(block, path)]}, {"Out": [out]}, {"scale": 1.0})
    return block.program


@pytest.mark.parametrize("way", DECODED)
def test_a_decoded_program_reads_no_file(block: Any, tmp_path: Path, way: str) -> None:
    recorded = secret(block, tmp_path / "secret")
    assert run(recorded, None, "y")[0].shape == (2, 3)
    decoded = DECODED[way](recorded)
    with pytest.raises(
        FileAccessError, match=r"load on the file .*secret.* must not read"
    ) as error:
        run(decoded, None, "y")
    assert "FLUID_MODEL_FILES" in str(error.value)


def test_a_decoded_program_writes_no_file_and_runs_nothing_before(
    block: Any, tmp_path: Path
) -> None:
    layers.Print(layers.ones([1], "float32"))
    w = layers.create_global_var([1], 1.0, "float32", persistable=True, name="w")
    block.append_op("fill_constant", {}, {"Out": [w]}, {"shape": [1], "value": 5.0, "dtype": 5})
    saving(block, tmp_path / "victim", w)
    decoded = DECODED["parsed"](block.program)
    with pytest.raises(FileAccessError, match=r"victim.* must not write"):
        run(decoded)
    assert list(tmp_path.iterdir()) == []
    assert not fluid.global_scope().find_var("w").get_tensor()._is_initialized()


def test_a_saved_model_reads_no_file(block: Any, tmp_path: Path) -> None:
    recorded, folder = secret(block, tmp_path / "secret"), tmp_path / "model"
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(str(folder), [], [block.var("y")], exe, recorded)
    program, _, fetches = fluid.io.load_inference_model(str(folder), exe)
    with pytest.raises(FileAccessError, match="secret"):
        exe.run(program, {}, fetches)
    with pytest.raises(CompileError, match="compiled programs cannot"):
        fluid.create_predictor(str(folder)).run({})


def test_a_block_of_a_program_reads_no_file(block: Any, tmp_path: Path) -> None:
    save_tensor(tmp_path / "x", ROWS)

    def branch() -> Any:
        return layers.scale(loading(block.program.current_block(), tmp_path / "x"), 1.0)

    true = layers.fill_constant([1], "bool", True)
    out = layers.cond(true, branch, lambda: layers.zeros([2, 3], "float32"))
    with pytest.raises(CompileError, match="compiled programs cannot"):
        run(block.program, None, out)


def test_the_folder_that_is_named_may_be_used(
    block: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").mkdir()
    decoded = DECODED["parsed"](secret(block, tmp_path / "open" / "x"))
    monkeypatch.setenv("FLUID_MODEL_FILES", str(tmp_path / "open"))
    np.testing.assert_array_equal(run(decoded, None, "y")[0], ROWS)
    monkeypatch.setenv("FLUID_MODEL_FILES", str(tmp_path / "other"))
    with pytest.raises(FileAccessError):
        run(decoded, None, "y")


@pytest.mark.parametrize("way", ["..", "link", "folder link", "like it"])
def test_ways_out_of_the_folder(
    block: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    inside, outside = tmp_path / "open", tmp_path / "open too"
    inside.mkdir()
    save_tensor(outside / "x", ROWS)
    (inside / "link").symlink_to(outside / "x")
    (inside / "folder").symlink_to(outside)
    paths = {
        "..": inside / ".." / "open too" / "x", "link": inside / "link",
        "folder link": inside / "folder" / "x", "like it": outside / "x",
    }  # fmt: skip
    loading(block, paths[way])
    saving(block, paths[way], "loaded")
    decoded = DECODED["parsed"](block.program)
    monkeypatch.setenv("FLUID_MODEL_FILES", str(inside))
    with pytest.raises(FileAccessError, match="must not read"):
        run(decoded, None, "loaded")


def test_layers_that_save_and_load(block: Any, tmp_path: Path) -> None:
    x, y = fluid.data("x", [None, 3]), layers.create_tensor("float32")
    files.save(x, str(tmp_path / "one"), overwrite=False)
    files.save_combine([layers.scale(x, 2.0), x], str(tmp_path / "two"))
    run(block.program, {"x": ROWS})
    np.testing.assert_array_equal(load_tensor(tmp_path / "one")[0], ROWS)
    with pytest.raises(FileAccessError, match="must not replace"):
        run(block.program, {"x": ROWS})
    loads = fluid.Program()
    with fluid.program_guard(loads):
        first, second = (layers.create_tensor("float32") for _ in range(2))
        files.load_combine([first, second], str(tmp_path / "two"))
    result = run(loads, {}, first, second)
    np.testing.assert_array_equal(result, [2 * ROWS, ROWS])
    with pytest.raises(TypeError, match="save_combine"):
        files.save_combine(y, str(tmp_path / "two"))
