"""The examples of ParallelExecutor's documentation run as they are written, on two devices."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("documented_parallel_executor_*.py"))


@pytest.mark.usefixtures("fresh_programs", "two_devices")
@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem[-1] for path in SCRIPTS])
def test_on_two_cpus(script: Path, tmp_path: Path) -> None:
    text = script.read_text(encoding="utf-8")
    text = text.replace("import paddle.fluid as fluid", "import fluid")
    here = tmp_path / script.name
    here.write_text(text.replace("use_cuda = True", "use_cuda = False"), encoding="utf-8")
    result = runpy.run_path(str(here))
    assert result["loss_data"].shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem[-1] for path in SCRIPTS])
def test_on_two_gpus_as_written(script: Path) -> None:
    """Kernels run in Triton's interpreter where there is no GPU."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    command = [sys.executable, "-m", "fluid", "run", str(script)]
    subprocess.run(command, env=environment, check=True, timeout=300)


def test_under_fluid_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = SCRIPTS[1].read_text(encoding="utf-8").replace("use_cuda = True", "use_cuda = False")
    script.write_text(text + "print('shape', loss_data.shape)\n", encoding="utf-8")
    command = [sys.executable, "-m", "fluid", "run", str(script)]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert "shape (2,)" in done.stdout
