"""A saved model is checked against a description of its feeds, and run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluid
from fleet.collective import fleet  # noqa: F401
from fleet.fleet_util import FleetUtil


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """A model of 3 → 2 numbers whose weights are 0, 1, …, and a description of its feed."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [None, 3])
        weights = fluid.initializer.NumpyArrayInitializer(np.arange(6.0).reshape(3, 2))
        out = fluid.layers.fc(x, 2, param_attr=fluid.ParamAttr("w", weights), bias_attr=False)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor, main, "m")
    feed = SimpleNamespace(
        feeded_vars_names=["x"], feeded_vars_dims=[3], feeded_vars_types=["float32"],
        feeded_vars_filelist=None,
    )  # fmt: skip
    return SimpleNamespace(
        dump_model_dir=str(tmp_path), dump_program_filename="m", is_text_dump_program=False,
        save_params_filename=None, batch_size=4, feed_config=feed,
        fetch_config=SimpleNamespace(fetch_vars_names=None),
    )  # fmt: skip


def test_random_numbers_of_a_batch_are_fed(config: Any) -> None:
    (result,) = FleetUtil().check_vars_and_dump(config)
    assert result.shape == (4, 2)
    assert (result[:, 1] > result[:, 0]).all()
    config.fetch_config.fetch_vars_names = ["x"]
    (fed,) = FleetUtil().check_vars_and_dump(config)
    assert fed.shape == (4, 3) and (fed >= 0).all() and (fed < 1).all()


def test_whole_batches_of_a_file_are_fed(config: Any, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 0 0 0 1 0 9\n0 0 1 1 1 1\n5 5\n")
    config.batch_size, config.feed_config.feeded_vars_filelist = 2, [str(tmp_path / "x.txt")]
    (result,) = FleetUtil().check_vars_and_dump(config)
    assert result.tolist() == [[0, 1], [2, 3], [4, 5], [6, 9]]
    config.batch_size = 3
    with pytest.raises(ValueError, match=r"no line has the 9 numbers of a batch of shape \(3, 3\)"):
        FleetUtil().check_vars_and_dump(config)


def test_what_does_not_match_is_named(config: Any) -> None:
    config.feed_config.feeded_vars_dims = [(5,)]
    with pytest.raises(RuntimeError, match=r"'x' shape not match.*\(3,\).*\(5,\)"):
        FleetUtil().check_vars_and_dump(config)
    config.feed_config.feeded_vars_dims = []
    with pytest.raises(ValueError, match="1 feeded_vars_names need as many dims"):
        FleetUtil().check_vars_and_dump(config)
    config.feed_config.feeded_vars_dims = [3]
    config.is_text_dump_program = True
    with pytest.raises(ValueError, match="line 1: "):
        FleetUtil().check_vars_and_dump(config)
