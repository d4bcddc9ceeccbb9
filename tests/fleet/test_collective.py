"""The collective fleet: what `minimize` makes, settings that exclude each other, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fleet import checkpoints
from fleet.checkpoints import TrainStatus
from fleet.collective import Collective, CollectiveOptimizer, DistributedStrategy
from fleet.file_systems import FS, LocalFS
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker
from fluid.contrib import mixed_precision
from tests.fleet import programs

TWO = ["127.0.0.1:6170", "127.0.0.1:6171"]


def a_fleet(endpoints: list[str] = TWO, number: int = 0) -> Collective:
    fleet = Collective()
    fleet.init(UserDefinedCollectiveRoleMaker(number, endpoints))
    return fleet


def kinds(program: Any) -> list[str]:
    return [op.type for op in program.global_block().ops]


@pytest.fixture
def loss() -> Iterator[Any]:
    with programs.fresh():
        yield programs.regression()


def minimized(fleet: Collective, loss: Any, **fields: Any) -> Any:
    """What a strategy with some fields makes of a program."""
    strategy = DistributedStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    return fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)


# ---- programs


def test_gradients_are_summed_by_the_build(loss: Any) -> None:
    fleet = a_fleet(number=1)
    ops, pairs = minimized(fleet, loss)
    assert ops and len(pairs) == 2
    assert isinstance(fleet.main_program, fluid.CompiledProgram)
    build = fleet.main_program._build_strategy
    assert (build.num_trainers, build.trainer_id, build.trainers_endpoints) == (2, 1, TWO)
    assert kinds(fleet.startup_program)[-1] == "gen_nccl_id"
    assert "sgd" in kinds(fleet._origin_program)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "collective", "collective_mode": "grad_allreduce"},
        {"_ut4grad_allreduce": True},
        {"use_local_sgd": True},
        {"mode": "collective", "collective_mode": "local_sgd"},
    ],
)
def test_collective_modes_have_ops_in_the_program(loss: Any, fields: dict[str, Any]) -> None:
    fleet = a_fleet()
    minimized(fleet, loss, **fields)
    assert fleet.main_program is loss.block.program
    assert "c_allreduce_sum" in kinds(loss.block.program)
    assert {"c_gen_nccl_id", "c_comm_init"} <= set(kinds(fluid.default_startup_program()))
    snapshots = any("@SNAPSHOT" in name for name in loss.block.vars)
    assert snapshots == ("local_sgd" in str(fields))


def test_one_worker_trains_as_one_process(loss: Any) -> None:
    fleet = a_fleet(["127.0.0.1:6170"])
    minimized(fleet, loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((4, 4), "float32"), "y": np.ones((4, 1), "float32")}
    first, last = (executor.run(fleet.main_program, feed, [loss])[0].item() for _ in range(2))
    assert last < first


def test_recompute_and_amp_wrap_the_optimizer(loss: Any) -> None:
    fleet = a_fleet()
    hidden = next(name for name in loss.block.vars if name.startswith("fc_0.tmp"))
    checkpoints = [loss.block.var(hidden)]
    minimized(
        fleet, loss, forward_recompute=True, recompute_checkpoints=checkpoints, use_amp=True,
        amp_loss_scaling=128.0,
    )  # fmt: skip
    assert "check_finite_and_unscale" in kinds(loss.block.program) or any(
        "loss_scaling" in name for name in loss.block.vars
    )


def test_strategies_are_copied(loss: Any) -> None:
    strategy = DistributedStrategy()
    strategy.use_local_sgd, strategy.nccl_comm_num = True, 3
    a_fleet().distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    assert (strategy.mode, strategy.nccl_comm_num) == ("nccl2", 3)
    assert strategy.exec_strategy.num_threads == 0


def test_rings_are_for_several_machines(loss: Any, caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_fleet()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1))
    own = fleet._optimizer._strategy
    own.nccl_comm_num, own.use_hierarchical_allreduce = 3, True
    with caplog.at_level(logging.WARNING):
        fleet._optimizer.minimize(loss)
    assert own.nccl_comm_num == 1 and not own.use_hierarchical_allreduce
    assert own.exec_strategy.num_threads == 2
    assert "set nccl_comm_num=1 since you only have 1 node" in caplog.text


def test_methods_of_servers_only_log(caplog: pytest.LogCaptureFixture) -> None:
    fleet = a_fleet()
    for name in ("init_worker", "run_worker", "init_server", "run_server", "stop_worker"):
        getattr(fleet, name)()
        assert f"You should not call '{name}' method for collective mode" in caplog.text


# ---- what excludes each other


def test_recompute_needs_a_list_of_checkpoints() -> None:
    strategy = DistributedStrategy()
    strategy.forward_recompute = True
    strategy.recompute_checkpoints = "NoneListTest"
    with pytest.raises(ValueError, match="recompute_checkpoints should be a List"):
        CollectiveOptimizer(fluid.optimizer.SGD(0.1), strategy)
    strategy.recompute_checkpoints = []
    with pytest.raises(ValueError, match=r"please set strategy\.recompute_checkpoints"):
        CollectiveOptimizer(fluid.optimizer.SGD(0.1), strategy).minimize(None)
    assert CollectiveOptimizer(fluid.optimizer.SGD(0.1), None)._strategy.mode == "nccl2"


def test_wrapped_optimizers_are_not_wrapped_again() -> None:
    strategy = DistributedStrategy()
    strategy.forward_recompute, strategy.recompute_checkpoints = True, ["Test"]
    wrapped = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ValueError, match="can not use RecomputeOptimizer when you set"):
        CollectiveOptimizer(wrapped, strategy).minimize(None)
    strategy = DistributedStrategy()
    strategy.use_amp = True
    wrapped = mixed_precision.decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=1.0)
    with pytest.raises(ValueError, match=r"can not use OptimizerWithMixedPrecision .*mixed_prec"):
        CollectiveOptimizer(wrapped, strategy).minimize(None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"use_local_sgd": True, "use_dist_fc": True}, "use_local_sgd and use_dist_fc together"),
        ({"use_dist_fc": True}, "dist_fc_config should be set"),
        ({"collective_mode": "local_sgd"}, "can be used under collective mode"),
        ({"collective_mode": "grad_allreduce"}, "can be used under collective mode"),
    ],
)
def test_settings_exclude_each_other(loss: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        minimized(a_fleet(), loss, **fields)
    assert "sgd" not in kinds(loss.block.program)


def test_lamb_excludes_local_sgd(loss: Any) -> None:
    strategy = DistributedStrategy()
    strategy.use_local_sgd = True
    optimizer = a_fleet().distributed_optimizer(fluid.optimizer.Lamb(0.1), strategy)
    with pytest.raises(AssertionError, match="use_local_sgd and use_lamb together"):
        optimizer.minimize(loss)


def test_arguments_of_other_types_are_rejected(loss: Any, tmp_path: Path) -> None:
    fleet = a_fleet()
    with pytest.raises(TypeError, match="must be a collective DistributedStrategy, not Build"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), fluid.BuildStrategy())
    with pytest.raises(TypeError, match="optimizer must be"):
        fleet.distributed_optimizer("Adam")
    with pytest.raises(AssertionError, match="executor must be as Executor type, not str"):
        fleet.save_persistables("executor", tmp_path)
    with pytest.raises(AssertionError, match="main_program must be as Program type, not NoneType"):
        fleet.save_inference_model(fluid.Executor(), tmp_path, ["x"], [loss])
    with pytest.raises(AttributeError, match="has no 'use_ampp'"):
        DistributedStrategy().use_ampp = True


# ---- files and checkpoints


class Remote(LocalFS):
    """A file system to which files are copied."""

    def need_upload_download(self) -> bool:
        return True


def weights() -> Any:
    return np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())


@pytest.mark.parametrize("fs", [LocalFS(), Remote()])
def test_another_number_of_workers_takes_a_checkpoint_up(
    loss: Any, tmp_path: Path, fs: FS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root, saver, executor = "points", a_fleet(["127.0.0.1:6170"]), fluid.Executor()
    minimized(saver, loss)
    executor.run(fluid.default_startup_program())
    assert saver.load_check_point(executor, root, 0, fs=fs) is None
    with pytest.raises(AssertionError, match="Can't find checkpoint"):
        saver.load_check_point(executor, root, 0, fs=fs, ignore_empty=False)
    saver.save_check_point(executor, root, TrainStatus(2), fs=fs)
    saver.save_check_point(executor, root, TrainStatus(3), fs=fs)
    saved = weights()
    with programs.fresh():
        other = a_fleet(TWO, 1)
        minimized(other, programs.regression())
        status = other.load_check_point(executor, root, trainer_id=1, fs=fs)
        assert status == TrainStatus(3) and status.next() == 4
        np.testing.assert_array_equal(weights(), saved)
    assert saver._get_last_checkpoint_no(root, fs) == 1
    saver.save_check_point(executor, root, TrainStatus(4), fs=fs, remain_all_checkpoint=False)
    assert fs.list_dirs(root) == ["__paddle_fleet_checkpoint__.2"]
    assert sorted(fs.ls_dir(f"{root}/__paddle_fleet_checkpoint__.2")) == [
        "_paddle_fleet_param__", "fleet_train_status",
    ]  # fmt: skip


def test_partial_checkpoints_and_other_folders_are_skipped(tmp_path: Path) -> None:
    for name in ("__paddle_fleet_checkpoint__.1", "__paddle_fleet_checkpoint__.7.tmp", "a.9",
                 "__paddle_fleet_checkpoint__.x", "__paddle_fleet_checkpoint__"):  # fmt: skip
        (tmp_path / name).mkdir()
    assert checkpoints.numbers(LocalFS(), str(tmp_path)) == [1]
    a_fleet().clean_redundant_check_points(str(tmp_path), checkpoint_num=0)
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("text", ["{", "[]", '{"epoch_no": -1}', '{"epoch_no": "1"}', " " * 5000])
def test_a_damaged_status_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "fleet_train_status").write_text(text)
    with pytest.raises(ValueError, match="fleet_train_status"):
        checkpoints.read_status(str(tmp_path))


def test_a_status_may_be_absent(tmp_path: Path) -> None:
    assert checkpoints.read_status(str(tmp_path)) == TrainStatus() != TrainStatus(1)
    assert hash(TrainStatus(1)) == hash(TrainStatus(1))


def test_local_file_system(tmp_path: Path) -> None:
    fs, folder = LocalFS(), str(tmp_path / "a/b")
    assert fs.list_dirs(folder) == []
    fs.mkdir(folder)
    (tmp_path / "a/b/file").write_text("x")
    with pytest.raises(AssertionError, match="is already a file"):
        fs.mkdir(f"{folder}/file")
    fs.upload(folder, str(tmp_path / "copy"))
    fs.download(str(tmp_path / "copy"), str(tmp_path / "back"))
    assert fs.ls_dir(str(tmp_path / "back")) == ["file"]
    fs.mv(f"{folder}/file", f"{folder}/other")
    fs.rm(f"{folder}/other")
    fs.delete(folder)
    fs.delete(folder)
    assert not fs.stat(folder) and fs.list_dirs(str(tmp_path)) == ["a", "back", "copy"]


def test_inference_models_are_of_the_program_before(loss: Any, tmp_path: Path) -> None:
    fleet, executor = a_fleet(["127.0.0.1:6170"]), fluid.Executor()
    minimized(fleet, loss)
    executor.run(fluid.default_startup_program())
    fleet.save_inference_model(executor, tmp_path / "model", ["x", "y"], [loss])
    fleet.save_persistables(executor, tmp_path / "state", filename="all")
    assert (tmp_path / "model/__model__").is_file() and (tmp_path / "state/all").is_file()
