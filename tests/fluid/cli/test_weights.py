"""`fluid weights`: parameters by name, listed and written for NumPy."""

from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli
from fluid.cli.weights import chosen
from runtime.files.checkpoint import load_tensor

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
LINE = GOLDEN / "fit_a_line__separate"
MLP = GOLDEN / "digits_mlp__separate"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run `fluid weights`, expect success, return what it printed."""
    code = cli.main(["weights", *map(str, arguments)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run `fluid weights`, expect exit code 2, return the message."""
    assert cli.main(["weights", *map(str, arguments)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fluid weights: ")
    return message


def test_names_types_shapes_and_sizes(capsys):
    assert run(capsys, LINE).splitlines() == [
        f"{LINE}: 2 parameters with 14 numbers, 56 B",
        "",
        "  parameter  type     shape    numbers  bytes",
        "  fc_0.b_0   float32  [1]            1    4 B",
        "  fc_0.w_0   float32  [13, 1]       13   52 B",
    ]


def test_arrays_are_those_of_the_files(capsys, tmp_path: Path):
    printed = run(capsys, MLP, "--npz", tmp_path / "w.npz")
    files = {path.name: path for path in MLP.iterdir() if path.name != "__model__"}
    with np.load(tmp_path / "w.npz") as result:
        assert sorted(result.files) == sorted(files)
        for name, path in files.items():
            np.testing.assert_array_equal(result[name], load_tensor(path)[0])
    assert f"written to {tmp_path / 'w.npz'}: {len(files)} arrays" in printed


def test_combined_files_and_unusual_names(capsys):
    folder = GOLDEN / "fit_a_line__combined"
    named = run(capsys, folder, "--model-filename", "model", "--params-filename", "params")
    assert named.splitlines()[1:] == run(capsys, LINE).splitlines()[1:]


def test_only_some(capsys, tmp_path: Path):
    printed = run(capsys, MLP, "--only", "fc_0.*", "--only", "*.b_0", "--npz", tmp_path / "w.npz")
    with np.load(tmp_path / "w.npz") as result:
        assert {"fc_0.w_0", "fc_0.b_0", "fc_1.b_0"} <= set(result.files)
        assert "fc_1.w_0" not in result.files
    assert "fc_1.w_0" not in printed


def test_a_pattern_that_fits_nothing(capsys):
    message = refused(capsys, LINE, "--only", "fc_0.w")
    assert "no parameter matches 'fc_0.w'; did you mean 'fc_0.w_0'?" in message
    assert "there are fc_0.b_0, fc_0.w_0" in refused(capsys, LINE, "--only", "zzz")


def test_numbers_in_names_count():
    params = {name: np.zeros(1) for name in ("fc_10.w", "fc_9.w", "a", "fc.w")}
    assert list(chosen(params, [])) == ["a", "fc.w", "fc_9.w", "fc_10.w"]


def test_a_folder_of_parameters_alone(capsys, exe, tmp_path: Path):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 3])
        fluid.layers.fc(x, 2, param_attr="deep/w", bias_attr="b")
        exe.run(startup)
        fluid.io.save_params(exe, str(tmp_path), main)
    assert "  deep/w     float32  [3, 2]" in run(capsys, tmp_path)


def test_weights_errors(capsys, tmp_path: Path):
    assert "holds no model" in refused(capsys, tmp_path)
    assert "does not exist" in refused(capsys, tmp_path / "none")
    assert "must end in .npz" in refused(capsys, LINE, "--npz", tmp_path / "w.txt")
    assert "holds one array, but there are 2" in refused(capsys, LINE, "--npz", tmp_path / "w.npy")
    assert not list(tmp_path.iterdir())


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["weights", "--help"])
    assert stopped.value.code == 0
    assert "--npz weights.npz" in capsys.readouterr().out
