"""`fluid infer` takes declared shapes as hints, as `Executor.run` does, and converts dtypes."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli
from fluid.cli.values.arrays import read_arrays


@pytest.fixture
def saved(tmp_path):
    """A function that saves a model whose feeds are those of a network."""

    def save(build):
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.scope_guard(fluid.Scope()),
        ):
            names, out = build()
            exe = fluid.Executor()
            if fluid.default_startup_program().global_block().ops:
                exe.run(fluid.default_startup_program())
            fluid.io.save_inference_model(str(tmp_path / "model"), names, [out], exe)
        return tmp_path / "model"

    return save


def fed(folder: Path, array: np.ndarray) -> Path:
    np.save(folder / "fed.npy", array)
    return folder / "fed.npy"


def result(capsys: pytest.CaptureFixture[str], model: Path, array: Path) -> Any:
    """The one array that a run writes."""
    output = array.with_name("out.npz")
    code = cli.main(["infer", str(model), "--input", str(array), "--output", str(output)])
    assert (code, capsys.readouterr().err) == (0, "")
    return next(iter(read_arrays(output).values()))


def convolution():
    pictures = fluid.layers.conv2d(fluid.layers.data("x", [3, 8, 8]), 2, 3)
    return ["x"], fluid.layers.pool2d(pictures, global_pooling=True)


def test_other_sizes_and_ranks_than_declared_run(capsys, saved, tmp_path):
    array = fed(tmp_path, np.ones((2, 3, 10, 12), "float32"))
    assert result(capsys, saved(convolution), array).shape == (2, 2, 1, 1)


def test_arrays_of_another_dtype_than_declared_are_converted(capsys, saved, tmp_path):
    model, output = saved(convolution), tmp_path / "out.npz"
    array = fed(tmp_path, np.ones((2, 3, 8, 8)))
    with warnings.catch_warnings(action="always"):
        assert cli.main(["infer", str(model), "--input", str(array), "--output", str(output)]) == 0
    conversion = f"{array} holds float64, feed 'x' takes float32: the numbers are converted"
    assert capsys.readouterr().err == f"fluid: warning: {conversion}\n"
    assert next(iter(read_arrays(output).values())).dtype == np.float32


def test_wider_integers_than_fed_run_without_a_warning(capsys, saved, tmp_path):
    def build():
        return ["x"], fluid.layers.one_hot(fluid.layers.data("x", [1], dtype="int64"), 3)

    array = fed(tmp_path, np.ones((2, 1), "int32"))
    assert result(capsys, saved(build), array).tolist() == [[0, 1, 0]] * 2


def test_sequences_that_no_op_reads_need_not_be_given(capsys, saved, tmp_path):
    def build():
        words = fluid.layers.data("words", [1], lod_level=1)
        return ["words"], fluid.layers.scale(words, 2.0)

    array = fed(tmp_path, np.ones((2, 1), "float32"))
    assert result(capsys, saved(build), array).tolist() == [[2.0]] * 2


def test_a_row_without_its_batch_names_the_axis_to_add(capsys, saved, tmp_path):
    array = fed(tmp_path, np.ones((3, 8, 8), "float32"))
    assert cli.main(["infer", str(saved(convolution)), "--input", str(array)]) == 2
    assert "hint: feed x[None], a batch of one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "problem"),
    [("x=", "--input x= names no file"), ("{npz}", "name the arrays in np.savez('{npz}', x=…)")],
)
def test_inputs_without_a_name_say_what_is_missing(capsys, saved, tmp_path, given, problem):
    npz = tmp_path / "unnamed.npz"
    np.savez(npz, np.ones((2, 3, 8, 8), "float32"))
    given, problem = (text.replace("{npz}", str(npz)) for text in (given, problem))
    assert cli.main(["infer", str(saved(convolution)), "--input", given]) == 2
    assert problem in capsys.readouterr().err


def test_unusable_feed_names_feed_and_op(capsys, saved, tmp_path):
    array = fed(tmp_path, np.ones((2, 4, 8, 8), "float32"))
    assert cli.main(["infer", str(saved(convolution)), "--input", str(array)]) == 2
    message = capsys.readouterr().err
    assert "feed 'x' must have the shape (-1, 3, 8, 8), but (2, 4, 8, 8) was given" in message
    assert "for the feed as passed: conv2d: " in message
