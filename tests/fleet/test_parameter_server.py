"""The fleet of parameter servers: programs of each role, errors, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fleet.parameter_server import DistributedTranspiler, TranspilerOptimizer
from fleet.roles.base import Role
from fleet.roles.user_defined import UserDefinedRoleMaker
from fleet.strategies import StrategyFactory
from tests.fleet import programs
from tests.support.ports import free_endpoints

SERVERS = ["127.0.0.1:6170", "127.0.0.1:6171"]


def a_fleet(role: int = Role.WORKER, number: int = 0) -> DistributedTranspiler:
    fleet = DistributedTranspiler()
    fleet.init(UserDefinedRoleMaker(number, role, 2, SERVERS))
    return fleet


def no_waiting(config: Any = None) -> Any:
    config = fluid.DistributeTranspilerConfig()
    config.wait_port = False
    return config


@pytest.fixture
def loss() -> Iterator[Any]:
    with programs.fresh():
        yield programs.regression()


def kinds(program: Any) -> list[str]:
    return [op.type for op in program.global_block().ops]


# ---- programs


def test_a_worker_sends_and_receives(loss: Any) -> None:
    fleet = a_fleet()
    config = no_waiting()
    before = dict(vars(config))
    ops, pairs = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), config).minimize(loss)
    assert [param.name for param, _ in pairs] == ["fc_0.w_0", "fc_0.b_0"] and ops
    assert fleet.main_program is loss.block.program
    assert fleet.startup_program is fluid.default_startup_program()
    assert {"send", "recv", "send_barrier"} <= set(kinds(fleet.main_program))
    assert "sgd" in kinds(fleet._origin_program) and "send" not in kinds(fleet._origin_program)
    assert vars(config) == before


def test_the_default_programs_are_transpiled_by_their_settings(loss: Any) -> None:
    fleet = a_fleet()
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(TypeError, match="strategy must be an instance of"):
        fleet._transpile("config")
    fleet._transpile(no_waiting())
    assert fleet.main_program is loss.block.program and "send" in kinds(fleet.main_program)


def test_a_server_updates_and_leaves_the_users_programs(loss: Any) -> None:
    fleet = a_fleet(Role.SERVER, 1)
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), no_waiting()).minimize(loss)
    assert kinds(fleet.main_program) == ["listen_and_serv"]
    op = fleet.main_program.global_block().ops[0]
    assert op.attr("endpoint") == SERVERS[1]
    assert op.attr("distributed_mode") == 0
    assert "send" not in kinds(loss.block.program)
    fleet.init_server()


@pytest.mark.parametrize(("name", "mode"), [("async", 1), ("half_async", 1), ("geo", 3)])
def test_asynchronous_servers_do_not_merge(loss: Any, name: str, mode: int) -> None:
    fleet = a_fleet(Role.SERVER)
    strategy = getattr(StrategyFactory, f"create_{name}_strategy")()
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    op = fleet.main_program.global_block().ops[0]
    assert (op.attr("distributed_mode"), op.attr("sync_mode")) == (mode, False)


def test_the_program_of_the_loss_is_transpiled_not_the_default_one(loss: Any) -> None:
    fleet = a_fleet()
    with programs.fresh() as (other, _):
        startup = fluid.Program()
        optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), no_waiting())
        optimizer.minimize(loss, startup_program=startup)
        assert fleet.main_program is loss.block.program is not other
        assert fleet.startup_program is startup and not other.global_block().ops


@pytest.mark.parametrize("servers", [1, 2])
def test_servers_load_what_was_saved(tmp_path: Path, servers: int) -> None:
    optimizer = fluid.optimizer.Adagrad(0.1)
    with programs.fresh():
        optimizer.minimize(programs.mlp())
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        fluid.io.save_persistables(executor, tmp_path)
        saved = np.array(fluid.global_scope().find_var("fc_1.w_0").get_tensor())
    parts = []
    for number in range(servers):
        with programs.fresh() as (_, startup):
            startup.random_seed = 7  # other values than those saved
            fleet = DistributedTranspiler()
            fleet.init(UserDefinedRoleMaker(number, Role.SERVER, 2, SERVERS[:servers]))
            optimizer = fluid.optimizer.Adagrad(0.1)
            fleet.distributed_optimizer(optimizer, no_waiting()).minimize(programs.mlp())
            fleet.init_server(tmp_path)
            held = [name for name in fleet.main_program.global_block().vars if "fc_1.w_0" in name]
            for name in held:
                result = fluid.global_scope().find_var(name)
                if re.fullmatch(r"fc_1\.w_0(\.block\d+)?", name) and result is not None:
                    parts.append((name, np.array(result.get_tensor())))
    whole = np.concatenate([array for _, array in sorted(parts)])
    np.testing.assert_array_equal(whole, saved)


# ---- errors


def test_an_optimizer_and_a_role_come_first(loss: Any) -> None:
    with pytest.raises(ValueError, match=r"use fleet\.init"):
        DistributedTranspiler().distributed_optimizer(fluid.optimizer.SGD(0.1))
    fleet = a_fleet()
    with pytest.raises(ValueError, match="optimizer must be an instance of Optimizer, not str"):
        fleet.distributed_optimizer("Adam")
    with pytest.raises(TypeError, match=r"strategy must be an instance of .* not str"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), "strategy")
    with pytest.raises(TypeError, match="optimizer must be"):
        TranspilerOptimizer("Adam", None)
    wrapped = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(TypeError, match="can not accept a list"):
        wrapped.minimize([])
    with pytest.raises(TypeError, match="can not accept a list"):
        wrapped.minimize(loss, startup_program=[])


def test_minimize_comes_before_the_rest() -> None:
    fleet = a_fleet()
    for call in (fleet.init_worker, fleet.init_server, fleet.run_server):
        with pytest.raises(ValueError, match=r"need invoke DistributedOptimizer\.minimize first"):
            call()


def test_a_server_needs_a_folder(loss: Any, tmp_path: Path) -> None:
    fleet = a_fleet(Role.SERVER)
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    with pytest.raises(ValueError, match="There is no directory named"):
        fleet.init_server(tmp_path / "none")


@pytest.mark.parametrize("mode", ["sync", "async", "half_async", "geo"])
def test_a_worker_without_wait_port_starts_and_stops_without_servers(loss: Any, mode: str) -> None:
    fleet = a_fleet()
    strategy = getattr(StrategyFactory, f"create_{mode}_strategy")()
    strategy.set_program_config({"wait_port": False})
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    fleet.init_worker()
    fleet.stop_worker()


def test_a_worker_names_the_servers_that_do_not_answer(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = DistributedTranspiler()
    [closed] = free_endpoints(1)
    fleet.init(UserDefinedRoleMaker(0, Role.WORKER, 1, [closed]))
    strategy = StrategyFactory.create_sync_strategy()
    strategy.set_program_config({"wait_port": False})
    strategy.set_trainer_runtime_config({"rpc_deadline": 1})
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    strategy.set_program_config({"wait_port": True})
    monkeypatch.setattr("fluid.transpiler.distribute.endpoints.RETRY_SECONDS", 0.01)
    with pytest.raises(TimeoutError, match=rf"no connection to {closed} within 0\.001 s"):
        fleet.init_worker()
    strategy.set_trainer_runtime_config({"rpc_deadline": "soon"})
    with pytest.raises(ValueError, match="rpc_deadline must be milliseconds, but is 'soon'"):
        fleet.init_worker()


def test_the_threads_of_a_server_are_those_of_the_strategy(loss: Any) -> None:
    strategy = StrategyFactory.create_sync_strategy()
    strategy.set_server_runtime_config({"_rpc_send_thread_num": 20, "_rpc_get_thread_num": 7})
    fleet = a_fleet(Role.SERVER)
    fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    serving = fleet.main_program.global_block().ops[-1]
    names = ("rpc_send_thread_num", "rpc_get_thread_num", "rpc_prefetch_thread_num")
    assert [serving.attr(name) for name in names] == [20, 7, 12]
    with pytest.raises(TypeError, match="must be a ServerRuntimeConfig, not dict"):
        fleet._transpiler._set_server_config({})


@pytest.mark.parametrize("method", ["save_inference_model", "save_persistables"])
def test_files_need_an_executor_and_a_program(loss: Any, tmp_path: Path, method: str) -> None:
    fleet, executor = a_fleet(), fluid.Executor()
    ends = [["x"], [loss]] if method == "save_inference_model" else []
    save = getattr(fleet, method)
    with pytest.raises(TypeError, match="executor must be as Executor type, str"):
        save("executor", tmp_path, *ends)
    compiled = fluid.CompiledProgram(loss.block.program)
    with pytest.raises(TypeError, match="must be as Program type, CompiledProgram"):
        save(executor, tmp_path, *ends, main_program=compiled)


def test_local_programs_are_saved_by_fluid_io(loss: Any, tmp_path: Path) -> None:
    fleet, executor = a_fleet(), fluid.Executor()
    with pytest.raises(ValueError, match="main_program is for local"):
        fleet.save_persistables(executor, tmp_path, loss.block.program)
    executor.run(fluid.default_startup_program())
    fleet.save_inference_model(executor, tmp_path, ["x", "y"], [loss], loss.block.program)
    assert {path.name for path in tmp_path.iterdir()} == {"__model__", "fc_0.w_0", "fc_0.b_0"}
