"""`fluid infer --memory-limit`: what a model of others would take is refused before it is taken."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli

ROOT = Path(__file__).resolve().parents[3]
LINE = ROOT / "tests" / "golden" / "inference" / "fit_a_line__separate"


def infer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run the command; its exit code and what it printed as an error."""
    code = cli.main(["infer", *map(str, arguments)])
    return code, capsys.readouterr().err


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """A batch of 15.6 MB for the model."""
    np.save(tmp_path / "houses.npy", np.ones((300_000, 13), "float32"))
    return tmp_path / "houses.npy"


def test_a_run_within_the_limit_runs(capsys: pytest.CaptureFixture[str], houses: Path) -> None:
    assert infer(capsys, LINE, "--input", houses, "--memory-limit", "1GiB") == (0, "")


def test_a_run_beyond_the_limit_is_rejected(
    capsys: pytest.CaptureFixture[str], houses: Path
) -> None:
    code, message = infer(capsys, LINE, "--input", houses, "--memory-limit", "10MB")
    assert code == 2
    assert re.search(r"a step takes .* MiB, more than the memory limit of 9\.54 MiB", message)
    assert "the largest are" in message
    assert "Traceback" not in message


def test_files_beyond_the_limit_are_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, message = infer(capsys, LINE, "--input", "none.npy", "--memory-limit", "100")
    assert code == 2
    assert "more than the memory limit of 100 B: nothing was read" in message


def test_data_dependent_sizes_are_limited_by_the_system(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x = fluid.layers.data(name="x", shape=[1], dtype="int64", append_batch_size=False)
        result = fluid.layers.range(0, x, 1, "int64")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model without parameters
            fluid.io.save_inference_model(str(tmp_path / "m"), ["x"], [result], fluid.Executor())
    np.save(tmp_path / "x.npy", np.array([1 << 28], "int64"))  # 2 GiB of numbers
    inputs = (tmp_path / "m", "--input", tmp_path / "x.npy", "--memory-limit", "100MB")
    code, message = infer(capsys, *inputs)
    assert code == 2
    assert "range: " in message
    assert "Unable to allocate 2.00 GiB" in message


@pytest.mark.parametrize("limit", ["60%", "much"])
def test_memory_limit_rejects_invalid_sizes(capsys: pytest.CaptureFixture[str], limit: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(["infer", str(LINE), "--memory-limit", limit])
    assert "is not a size, like 500MB or 2GiB" in capsys.readouterr().err
