"""Trainings against those of the reference: losses step by step, what is learnt, what it predicts.

Recorded from Paddle 1.8.5: initial parameters, six batches, losses, final parameters, a batch for
the test program and its outputs. Every training is run as compiled by default, and one of each
model with memory reuse and fusion off.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.options import Options
from runtime.gpu.cuda import interprets
from tests.golden import zoo

RECORDINGS = sorted((Path(__file__).parents[2] / "golden" / "train").glob("*.npz"))
ONE_OF_EACH_MODEL = list({path.stem.split("__")[0]: path for path in RECORDINGS}.values())

NOISY = {"lenet_bn__adam": 3}
"""Trainings that follow rounding noise, and how many losses stand before it shows.

The batch norm takes the mean off behind `conv2d_0`, so where no relu cuts, the gradient of its bias
is 0 but for rounding, and Adam scales that to whole steps: the reference itself, given the same
rows in reverse, ends elsewhere by 0.27.
"""

INTERPRETED_TO_THE_END = ("digits_mlp", "fit_a_line", "static_rnn_lm", "while_power")
"""Models small enough for all steps in Triton's interpreter; of others it takes two, a GPU all."""


def close(got: Any, want: np.ndarray, what: str) -> None:
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-4 * scale, err_msg=what)


def parts(recorded: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in recorded.items() if k.startswith(prefix)}


def feeds(recorded: dict[str, np.ndarray], prefix: str) -> dict[str, Any]:
    """The feeds of a step; what has lengths is cut into sequences of them."""
    result: dict[str, Any] = parts(recorded, prefix)
    for name, lengths in parts(recorded, "lod:" + prefix).items():
        place = fluid.CPUPlace()
        result[name] = fluid.create_lod_tensor(result[name], [lengths.tolist()], place)
    return result


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_training_equals_the_reference_s(path: Path, fresh_programs: Any) -> None:
    train(path, fresh_programs, fluid.CPUPlace())


@pytest.mark.parametrize("path", ONE_OF_EACH_MODEL, ids=lambda path: path.stem)
def test_training_without_memory_reuse_and_fusion_equals_the_reference_s(
    path: Path, fresh_programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_DISABLE", "fuse_pointwise,schedule,reuse_memory")
    train(path, fresh_programs, fluid.CPUPlace())


@pytest.mark.device
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_training_on_a_device_equals_the_reference_s(path: Path, fresh_programs: Any) -> None:
    pytest.importorskip("triton")
    slow = not path.stem.startswith(INTERPRETED_TO_THE_END) and interprets()
    train(path, fresh_programs, fluid.CUDAPlace(0), most=2 if slow else 6)


def train(path: Path, fresh_programs: Any, place: Any, most: int = 6) -> None:
    """Train on a place from the recorded parameters, and hold all against the recording."""
    recorded = dict(np.load(path))
    main, startup = fresh_programs
    model, optimizer = path.stem.split("__")
    loss, outputs = zoo.MODELS[model](fluid)[:2]
    test = main.clone(for_test=True)
    zoo.optimizer(fluid, optimizer).minimize(loss)
    exe, scope = fluid.Executor(place), fluid.global_scope()
    exe.run(startup)
    for name, value in parts(recorded, "init.").items():
        scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    steps = min(most, NOISY.get(path.stem, len(recorded["losses"])))
    for step, want in enumerate(recorded["losses"][:steps]):
        (got,) = exe.run(main, feed=feeds(recorded, f"feed{step}."), fetch_list=[loss])
        assert got.item() == pytest.approx(float(want), rel=1e-3, abs=1e-3), f"loss of step {step}"
    if steps < len(recorded["losses"]):
        return
    for name, want in parts(recorded, "final.").items():
        close(np.asarray(scope.find_var(name).get_tensor()), want, name)
    feed = feeds(recorded, "test.")
    predicted = exe.run(test, feed=feed, fetch_list=outputs, return_numpy=False)
    for index, got in enumerate(predicted):
        close(np.asarray(got), recorded[f"test_out{index}"], f"output {index}")


def test_disabled_passes_are_left_out() -> None:
    assert Options.from_env({"FLUID_DISABLE": "schedule"}).disable == {"schedule"}
