"""`FleetUtil`: messages of worker 0, metrics over workers, models by day, program files."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluid
from fleet import collective, parameter_server
from fleet.fleet_util import MISSING, FleetUtil, check_all_trainers_ready
from fleet.global_metrics import area, bucket_error
from fleet.program_files import load_program
from fleet.roles.base import Role
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker, UserDefinedRoleMaker
from tests.fleet import programs
from tests.support.ports import free_endpoints


@pytest.fixture
def util() -> FleetUtil:
    collective.fleet.init(UserDefinedCollectiveRoleMaker(0, free_endpoints(1)))
    return FleetUtil("collective")


def test_modes() -> None:
    with pytest.raises(ValueError, match="mode must be one of transpiler, collective"):
        FleetUtil("other")
    with pytest.raises(NotImplementedError, match="no PSLIB here"):
        FleetUtil("pslib")


def test_worker_0_speaks(
    util: FleetUtil, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        util.rank0_print("printed")
        util.rank0_info("info")
        util.rank0_error("error")
    assert capsys.readouterr().out == "printed\n"
    assert {"info", "error"} <= set(caplog.messages)


def test_area_and_zeros(util: FleetUtil, capsys: pytest.CaptureFixture[str]) -> None:
    scope = fluid.Scope()
    assert util.get_global_auc(scope) is None
    positive, negative = np.array([[0, 1, 3]]), np.array([[4, 1, 0]])
    for name, counts in (("p", positive), ("n", negative)):
        scope.var(name).get_tensor().set(counts, fluid.CPUPlace())
    assert util.get_global_auc(scope, "p", "n") == pytest.approx((4 * 4 + 3 + 0.5) / 20)
    util.print_global_auc(scope, "p", "n", "day 1")
    assert "day 1 global auc = 0.97" in capsys.readouterr().out
    util.set_zero("p", scope)
    assert np.array(scope.find_var("p").get_tensor()).tolist() == [[0, 0, 0]]
    assert util.get_global_auc(scope, "p", "n") == 0.5 and area(np.array([]), np.array([])) == 0.5


METHODS = """rank0_print rank0_info rank0_error set_zero print_global_auc get_global_auc
load_fleet_model_one_table load_fleet_model save_fleet_model write_model_donefile
write_xbox_donefile write_cache_donefile load_model save_model save_batch_model save_delta_model
save_xbox_base_model save_cache_model save_cache_base_model pull_all_dense_params
save_paddle_inference_model save_paddle_params get_last_save_xbox_base get_last_save_xbox
get_last_save_model get_online_pass_interval get_global_metrics print_global_metrics
program_type_trans draw_from_program_file draw_from_program check_two_programs check_vars_and_dump
parse_program_proto"""
"""The public methods of release 1.8.5."""


def test_every_method_of_the_reference_is_there_or_explains_why_not(util: FleetUtil) -> None:
    for name in METHODS.split():
        if name in MISSING:
            with pytest.raises(NotImplementedError, match=f"FleetUtil.{name} is not supported: "):
                getattr(util, name)("path", 1)
        else:
            assert inspect.ismethod(getattr(util, name))
    with pytest.raises(AttributeError, match="FleetUtil has no 'rank1_print'"):
        _ = util.rank1_print


def test_metrics_of_click_rates(util: FleetUtil, capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers are those of release 1.8.5 for the same counts."""
    scope, draw, up = fluid.Scope(), np.random.RandomState(5), np.arange(64)
    assert util.get_global_metrics(scope) == [None] * 9
    assert "not found _generated_var_2" in capsys.readouterr().out
    for name, most in (("_generated_var_2", up), ("_generated_var_3", up[::-1])):
        counts = (draw.rand(1, 64) * most * 9).astype("int64")
        scope.var(name).get_tensor().set(counts, fluid.CPUPlace())
    sums = {"sqrerr": 700, "abserr": 3000, "prob": 6000, "q": 50, "pos": 9000, "total": 17000}
    for name, value in sums.items():
        scope.var(name).get_tensor().set(np.array([value], "float32"), fluid.CPUPlace())
    result = util.get_global_metrics(scope)
    assert result == pytest.approx(
        [0.845010183570236, 0.14479826877273705, 0.1764706, 0.20291986561008926, 0.5294118,
         0.3529412, 1.5, 0.0029411765, 17000]
    )  # fmt: skip
    util.print_global_metrics(scope, print_prefix="day 1")
    printed = capsys.readouterr().out
    assert printed.startswith("day 1 global AUC=0.845010 BUCKET_ERROR=0.144798 MAE=0.176471 ")
    assert printed.endswith("COPC=1.500000 MEAN Q_VALUE=0.002941 Ins number=17000\n")
    assert bucket_error(np.array([1, 1]), np.array([1, 1])) == 0.0  # too few examples


def test_models_by_day(tmp_path: Path) -> None:
    collective.fleet.init(UserDefinedCollectiveRoleMaker(0, free_endpoints(1)))
    util = FleetUtil("collective")
    with programs.fresh() as (main, startup):
        loss = programs.regression()
        collective.fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
        fluid.Executor().run(startup)
        util.save_model(str(tmp_path), 20190722, 88)
        util.save_batch_model(str(tmp_path), 20190722)
        for folder in ("88", "0"):
            names = {path.name for path in (tmp_path / "20190722" / folder).iterdir()}
            assert {"fc_0.w_0", "fc_0.b_0"} <= names
        weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
        before = np.array(weight)
        util.pull_all_dense_params(fluid.global_scope(), main)
        np.testing.assert_array_equal(np.array(weight), before)
    with pytest.raises(NotImplementedError, match="mode is 1, expected 0"):
        util.save_fleet_model(str(tmp_path), mode=1)


def test_intervals_of_online_training(util: FleetUtil) -> None:
    result = util.get_online_pass_interval("{20190720..20190729}", "{22..23}", 30, 2, False)
    assert result == [["2200", "2230"], ["2300", "2330"]]
    assert util.get_online_pass_interval("20190720", "0 1", "60", "3", True) == [["00", "01"]]
    with pytest.raises(ValueError, match="hours is '`date`', expected"):
        util.get_online_pass_interval("20190720", "`date`", 5, 2, False)
    with pytest.raises(ValueError, match="must be at least 1"):
        util.get_online_pass_interval("20190720", "0", 0, 2, False)


def test_program_files(util: FleetUtil, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with programs.fresh() as (main, _):
        loss = programs.regression()
        pruned = main.clone()
        fluid.optimizer.Adagrad(0.1).minimize(loss)
    for name, program in (("train", main), ("pruned", pruned)):
        (tmp_path / name).write_bytes(program.desc.serialize_to_string())
    assert util.program_type_trans(str(tmp_path), "pruned", False) == "pruned.pbtxt"
    assert (tmp_path / "pruned.pbtxt").read_text() == str(pruned)
    assert util.program_type_trans(str(tmp_path), "pruned.pbtxt", True) == "pruned.pbtxt.bin"
    assert str(load_program(str(tmp_path / "pruned.pbtxt.bin"))) == str(pruned)
    util.draw_from_program_file(str(tmp_path / "pruned"), False, str(tmp_path), "drawn")
    assert '"fc_0.w_0" -> "op 0"' in (tmp_path / "drawn.dot").read_text()
    util.parse_program_proto(str(tmp_path / "train"), False, str(tmp_path))
    assert "'fc_0.w_0_moment_0'" in (tmp_path / "vars_persistable.log").read_text()
    assert (tmp_path / "ops.log").read_text().count("adagrad") == 2
    assert "'mean_0.tmp_0'" in (tmp_path / "vars_all.log").read_text()
    config: Any = SimpleNamespace(
        train_prog_path=str(tmp_path / "train"), pruned_prog_path=str(tmp_path / "pruned"),
        is_text_train_program=False, is_text_pruned_program=False, draw=True, draw_out_name="two",
    )  # fmt: skip
    assert util.check_two_programs(config) and (tmp_path / "two.dot").is_file()
    with programs.fresh() as (other, _):
        fluid.layers.fc(fluid.layers.data("x", [5]), 1)
    (tmp_path / "pruned").write_bytes(other.desc.serialize_to_string())
    assert not util.check_two_programs(config)
    assert "variable: fc_0.w_0 not match" in caplog.text


def test_workers_that_are_ready_leave_a_file(tmp_path: Path) -> None:
    parameter_server.fleet.init(UserDefinedRoleMaker(0, Role.WORKER, 1, ["127.0.0.1:6170"]))
    check_all_trainers_ready(str(tmp_path / "ready"), 3)
    assert [path.name for path in (tmp_path / "ready").iterdir()] == ["ready.3.0.done"]
