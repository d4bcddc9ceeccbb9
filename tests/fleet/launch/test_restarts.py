"""A job that is restarted trains on from its last checkpoint, on any number of processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fluid

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "launched_training.py"
KILLED = """\
import os, runpy, signal, sys
import numpy as np

draw = np.random.default_rng

def killed(epoch):
    if os.environ["PADDLE_TRAINER_ID"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return draw(epoch)

np.random.default_rng = killed
runpy.run_path({example!r}, run_name="__main__")
"""


def example() -> ModuleType:
    spec = util.spec_from_file_location("launched_training", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launch(folder: Path, processes: int, script: Path, epochs: int, *flags: str) -> None:
    inputs = ["--nproc_per_node", str(processes), "--log_dir", str(folder / f"logs{processes}")]
    arguments = ["--epochs", str(epochs), "--checkpoints", str(folder / "checkpoints")]
    done = subprocess.run(
        [sys.executable, "-m", "fluid", "launch", *inputs, *flags, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "30000"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def train_on(folder: Path, processes: int) -> float:
    """The loss of the fourth epoch, on another number of processes than the first three."""
    if processes == 1:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            return example().train(4, folder / "checkpoints")[-1]
    launch(folder, processes, EXAMPLE, 4)
    return float(np.mean(losses(folder / f"logs{processes}", 3)))


def losses(logs: Path, epoch: int) -> list[float]:
    """The loss of every process in an epoch."""
    texts = [path.read_text() for path in sorted(logs.glob("workerlog.*"))]
    results = [re.search(rf"epoch {epoch}: loss (\S+)", text) for text in texts]
    return [float(each[1]) for each in results if each]


def parameters() -> list[np.ndarray]:
    names = [parameter.name for parameter in fluid.default_main_program().all_parameters()]
    return [np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names]


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("processes", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_rank_costs_an_epoch_at_most(processes: int, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(example=str(EXAMPLE)))
    launch(tmp_path, 2, script, 3, "--max_restarts", "1")
    logs = tmp_path / "logs2"
    assert "epoch 1: loss" in (logs / "workerlog.1").read_text()
    restarted = (logs / "workerlog.1.1").read_text()
    assert "epoch 2: loss" in restarted and "epoch 1: loss" not in restarted
    later = train_on(tmp_path, processes)

    (tmp_path / "alone").mkdir()
    undisturbed = example().train(4, tmp_path / "alone")
    expected = parameters()
    assert undisturbed[-1] < undisturbed[0] / 3
    assert np.mean(losses(logs, 2)) == pytest.approx(undisturbed[2], abs=1e-5)
    assert later == pytest.approx(undisturbed[3], abs=1e-5)
    state = str(tmp_path / "checkpoints" / "epoch-4")
    fluid.io.load_persistables(fluid.Executor(), state, filename="state")
    for value, wanted in zip(parameters(), expected, strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-5)
