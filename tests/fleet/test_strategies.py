"""Strategies of parameter servers: defaults, setters and errors as release 1.8.5 has them."""

from __future__ import annotations

from typing import Any

import pytest

import fluid
from fleet.communicator_settings import TrainerRuntimeConfig
from fleet.strategies import DistributedStrategy, StrategyFactory, strategy_for
from fluid.transpiler.distribute.config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)

FLAGS = {
    "sync": {"half_async": True, "completely_not_async": True, "geo_sgd_mode": False},
    "async": {"half_async": False, "completely_not_async": False, "geo_sgd_mode": False},
    "half_async": {"half_async": True, "completely_not_async": False, "geo_sgd_mode": False},
    "geo": {"half_async": False, "completely_not_async": False, "geo_sgd_mode": True},
}
SHARED = {
    "communicator_max_merge_var_num", "communicator_send_wait_times",
    "communicator_thread_pool_size", "communicator_send_queue_size",
}  # fmt: skip
FIELDS = ("program_config", "trainer_runtime_config", "server_runtime_config", "execute_strategy",
          "build_strategy")  # fmt: skip


def made(name: str) -> Any:
    return getattr(StrategyFactory, f"create_{name}_strategy")()


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")


@pytest.mark.parametrize("name", FLAGS)
def test_modes_set_what_release_1_8_5_sets(name: str) -> None:
    strategy = made(name)
    config = strategy.get_program_config()
    assert (config.sync_mode, config.runtime_split_send_recv) == (False, True)
    assert {field: getattr(config, field) for field in FLAGS[name]} == FLAGS[name]
    assert strategy.get_build_strategy().async_mode
    reduce = fluid.BuildStrategy.ReduceStrategy.Reduce
    assert strategy.get_build_strategy().reduce_strategy is reduce
    assert strategy.get_execute_strategy().num_threads == 2
    barrier = strategy.get_execute_strategy().use_thread_barrier
    assert barrier == (name in ("sync", "half_async"))


@pytest.mark.parametrize("name", FLAGS)
def test_a_communicator_reads_the_flags_of_its_mode(name: str) -> None:
    runtime = made(name).get_trainer_runtime_config()
    runtime.runtime_configs["communicator_thread_pool_size"] = 50
    flags = runtime.get_communicator_flags()
    assert flags["communicator_thread_pool_size"] == "50"
    shared = SHARED if name != "geo" else SHARED & flags.keys()
    assert shared <= flags.keys()
    assert ("communicator_independent_recv_thread" in flags) == (name == "async")
    assert "communicator_thread_pool_size" in repr(runtime)


def test_synchronous_queues_have_the_size_of_cpu_num() -> None:
    runtime = made("sync").get_trainer_runtime_config()
    runtime.runtime_configs["communicator_send_queue_size"] = "50"
    with pytest.warns(UserWarning, match="communicator_send_queue_size must equal CPU_NUM, 2"):
        assert runtime.get_communicator_flags()["communicator_send_queue_size"] == "2"
    runtime.mode = 7
    with pytest.raises(ValueError, match="Unsupported Mode 7"):
        runtime.get_communicator_flags()


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("field", FIELDS)
def test_setters_take_dicts_and_refuse_the_rest(name: str, field: str) -> None:
    strategy = made(name)
    setter = getattr(strategy, f"set_{field}")
    with pytest.raises(ValueError, match="doesn't have key: unknown"):
        setter({"unknown": None})
    with pytest.raises(TypeError, match=f"{field} only accept input type: dict or"):
        setter(None)


@pytest.mark.parametrize("name", FLAGS)
def test_setters_change_fields_and_keep_the_mode(name: str) -> None:
    strategy = made(name)
    strategy.set_program_config({"min_block_size": 81920})
    strategy.set_trainer_runtime_config({"communicator_send_wait_times": 9})
    strategy.set_server_runtime_config({"_rpc_send_thread_num": 20})
    strategy.set_execute_strategy({"num_threads": 4})
    strategy.set_build_strategy({"async_mode": False})
    assert strategy.get_program_config().min_block_size == 81920
    flags = strategy.get_trainer_runtime_config().get_communicator_flags()
    assert flags["communicator_send_wait_times"] == "9"
    assert strategy.get_server_runtime_config()._rpc_send_thread_num == 20
    assert strategy.get_execute_strategy().num_threads == 4
    assert strategy.get_build_strategy().async_mode


def test_setters_copy_what_they_are_given() -> None:
    strategy, config = made("async"), DistributeTranspilerConfig()
    config.min_block_size = 9000
    strategy.set_program_config(config)
    runtime = TrainerRuntimeConfig()
    strategy.set_trainer_runtime_config(runtime)
    strategy.set_server_runtime_config(ServerRuntimeConfig())
    strategy.set_build_strategy(build := fluid.BuildStrategy())
    strategy.set_execute_strategy(fluid.ExecutionStrategy())
    assert strategy.get_program_config().min_block_size == 9000
    assert config.sync_mode and not config.runtime_split_send_recv
    assert runtime.mode is None and not build.async_mode
    assert strategy.get_trainer_runtime_config().mode is DistributedMode.ASYNC


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({}, "SyncStrategy"),
        ({"sync_mode": False}, "HalfAsyncStrategy"),
        ({"sync_mode": False, "runtime_split_send_recv": True}, "AsyncStrategy"),
        ({"sync_mode": False, "runtime_split_send_recv": True, "half_async": True},
         "HalfAsyncStrategy"),
        ({"sync_mode": False, "runtime_split_send_recv": True, "geo_sgd_mode": True},
         "GeoStrategy"),
    ],
)  # fmt: skip
def test_a_config_means_a_strategy(fields: dict[str, bool], mode: str) -> None:
    config = DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    before = dict(vars(config))
    assert type(strategy_for(config)).__name__ == mode
    assert vars(config) == before


def test_geo_checks_its_frequency() -> None:
    strategy = StrategyFactory.create_geo_strategy(7)
    assert strategy.get_program_config().geo_sgd_need_push_nums == 7
    with pytest.raises(ValueError, match="at least 1 step"):
        StrategyFactory.create_geo_strategy(0)
    with pytest.raises(TypeError, match="must be an int"):
        StrategyFactory.create_geo_strategy("7")


def test_the_base_has_no_mode() -> None:
    base = DistributedStrategy()
    for field in FIELDS:
        with pytest.raises(NotImplementedError, match="You should use StrategyFactory"):
            getattr(base, f"check_{field}")()


def test_debug_options_have_defaults() -> None:
    strategy = made("sync")
    assert strategy.get_debug_opt() == {}
    strategy.set_debug_opt({"dump_fields": ["a"]})
    result = strategy.get_debug_opt()
    assert (result["dump_fields"], result["dump_file_num"], result["dump_slot"]) == (
        ["a"],
        16,
        False,
    )


def test_a_wrong_cpu_num_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(ValueError, match="CPU_NUM is 'many', expected a whole number from 1"):
        made("sync")
