"""The names of OpenKS: the factory, both algorithms and their optimizers, strategies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleet
import fluid
from fleet.openks import algorithms, launcher
from fleet.openks.strategies import (
    ASyncModelConfig,
    CollectiveMode,
    CPUStrategy,
    GeoSGDModelConfig,
    GPUStrategy,
    GradAllreduce,
    HalfSyncModelConfig,
    HierarchicalAllreduce,
    LocalSGD,
    NCCL2Mode,
    NumThreadsConfig,
    SyncModeConfig,
)
from fleet.strategies import strategy_for
from tests.fleet import programs
from tests.support.ports import free_endpoints

ROOT = Path(__file__).parents[2]
SERVERS = ["127.0.0.1:6170", "127.0.0.1:6171"]


@pytest.fixture
def loss() -> Iterator[Any]:
    with programs.fresh():
        yield programs.mlp()


def cpu(number: int = 0, role: int = fleet.Role.WORKER) -> Any:
    algorithm = fleet.CPUDistributedAlgorithm()
    algorithm.init(fleet.UserDefinedRoleMaker(number, role, 2, SERVERS))
    return algorithm


def gpu(endpoints: list[str] = SERVERS) -> Any:
    algorithm = fleet.GPUDistributedAlgorithm()
    algorithm.init(fleet.UserDefinedCollectiveRoleMaker(0, endpoints))
    return algorithm


def kinds(program: Any) -> list[str]:
    return [op.type for op in program.global_block().ops]


# ---- names


def test_import_fleet_is_light() -> None:
    code = "import sys, fleet; assert not {'fluid', 'torch', 'networkx'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
    for name in fleet.__all__:
        assert getattr(fleet, name) is not None
    assert set(fleet.__all__) <= set(dir(fleet))
    with pytest.raises(AttributeError, match=r"fleet has no 'KSDistributedFactori'; .*Factory"):
        _ = fleet.KSDistributedFactori


def test_the_factory_returns_one_object_for_each_flag() -> None:
    instantiation = fleet.KSDistributedFactory.instantiation
    assert instantiation(0) is instantiation("cpu") is instantiation(flag=False)
    assert instantiation(1) is instantiation("gpu") is instantiation(flag=True)
    assert isinstance(instantiation(0), fleet.CPUDistributedAlgorithm)
    assert isinstance(instantiation(1), fleet.GPUDistributedAlgorithm)
    assert isinstance(instantiation(1), fleet.BaseDistributedAlgorithm)
    for flag in (2, "tpu", None):
        with pytest.raises(ValueError, match="flag must be 0 or 'cpu', or 1 or 'gpu'"):
            instantiation(flag)


def test_both_spellings_answer_the_same() -> None:
    algorithm = fleet.BaseDistributedAlgorithm(fleet.Mode.TRANSPILER)
    algorithm.init(fleet.Mode.COLLECTIVE)
    assert algorithm._mode is fleet.Mode.COLLECTIVE and not algorithm._is_initialized
    with pytest.raises(RuntimeError, match=r"call fleet\.init"):
        algorithm.is_worker()
    algorithm.init(fleet.UserDefinedRoleMaker(0, fleet.Role.WORKER, 1, SERVERS))
    assert algorithm.is_worker() and algorithm._is_worker() and not algorithm.is_server()
    assert algorithm.is_first_worker() and algorithm.worker_num() == 1
    assert (algorithm.worker_index(), algorithm.server_index(), algorithm.server_num()) == (0, 0, 2)
    assert algorithm.server_endpoints() == SERVERS
    assert algorithm.server_endpoints(to_string=True) == ",".join(SERVERS)
    assert algorithm.worker_endpoints() == [] and algorithm.worker_endpoints(True) == ""
    with pytest.raises(TypeError, match="role_maker must be a RoleMakerBase, not str"):
        algorithm.init("pserver")


def test_single_worker_needs_no_rendezvous() -> None:
    algorithm = gpu(free_endpoints(1))
    output = [0.0, 0.0]
    algorithm.all_reduce_worker([1.0, 2.0], output)
    assert output == [1.0, 2.0]
    algorithm.barrier_worker()
    algorithm.barrier_workers()


@pytest.mark.parametrize(
    ("count", "workers", "shares"),
    [(5, 2, [3, 2]), (2, 3, [1, 1, 0]), (7, 3, [3, 2, 2]), (0, 2, [0, 0])],
)
def test_split_files(count: int, workers: int, shares: list[int]) -> None:
    files, result = [f"part-{n}" for n in range(count)], []
    for number in range(workers):
        algorithm = fleet.CPUDistributedAlgorithm()
        role = fleet.UserDefinedRoleMaker(number, fleet.Role.WORKER, workers, SERVERS)
        algorithm.init(role)
        result.append(algorithm.split_files(files))
    assert [len(each) for each in result] == shares and [
        name for each in result for name in each
    ] == files
    with pytest.raises(TypeError, match="files must be a list, not str"):
        algorithm.split_files("files")


# ---- parameter servers


def test_minimize_takes_arguments_in_documented_order(loss: Any) -> None:
    algorithm, startup = cpu(), fluid.default_startup_program()
    optimizer = CPUStrategy().setup_optimizer(algorithm, fluid.optimizer.Adagrad(0.01))
    assert isinstance(optimizer, fleet.GeneralDistributedOptimizer)
    assert isinstance(optimizer, fleet.BaseDistributedOptimizer)
    ops, pairs = optimizer.minimize(loss, startup, ["fc_0.w_0"], {"fc_1.w_0"})
    assert [param.name for param, _ in pairs] == ["fc_0.w_0"] and ops
    assert algorithm.startup_program is startup
    assert {"send", "recv"} <= set(kinds(algorithm.main_program))


def test_backward_and_apply_gradients_are_the_two_parts(loss: Any) -> None:
    for optimizer in (
        fleet.GeneralDistributedOptimizer(fluid.optimizer.SGD(0.1)),
        fleet.HeterogeneousDistributedOptimizer(fluid.optimizer.SGD(0.1)),
    ):
        with programs.fresh():
            loss = programs.mlp()
            pairs = optimizer.backward(loss)
            assert len(pairs) == 6 and "sgd" not in kinds(loss.block.program)
            assert [op.type for op in optimizer.apply_gradients(pairs)].count("sgd") == 6


def test_the_base_optimizer_does_not_define_how_to_distribute(loss: Any) -> None:
    optimizer = fleet.BaseDistributedOptimizer(fluid.optimizer.SGD(0.1), strategy=None)
    with pytest.raises(NotImplementedError, match="does not say how to distribute"):
        optimizer.minimize(loss)
    with pytest.raises(TypeError, match=r"must be a fluid\.optimizer, not str"):
        fleet.BaseDistributedOptimizer("Adam")


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        (SyncModeConfig(), "SyncStrategy"),
        (HalfSyncModelConfig(), "HalfAsyncStrategy"),
        (ASyncModelConfig(), "AsyncStrategy"),
        (GeoSGDModelConfig(7), "GeoStrategy"),
    ],
)
def test_cpu_strategies(loss: Any, config: Any, mode: str) -> None:
    created = CPUStrategy([config])
    assert type(strategy_for(created.strategy)).__name__ == mode and not created.strategy.wait_port
    algorithm = cpu()
    created.setup_optimizer(algorithm, fluid.optimizer.SGD(0.1)).minimize(loss)
    assert type(algorithm._transpile_config).__name__ == mode
    if mode == "GeoStrategy":
        assert algorithm._transpile_config.get_program_config().geo_sgd_need_push_nums == 7


# ---- collectives


def test_gpu_strategies() -> None:
    strategy = GPUStrategy([NumThreadsConfig(32)], [CollectiveMode(), GradAllreduce()]).strategy
    assert strategy.exec_strategy.num_threads == 32
    assert (strategy.mode, strategy.collective_mode) == ("collective", "grad_allreduce")
    strategy = GPUStrategy([], [LocalSGD(), HierarchicalAllreduce(2)]).strategy
    assert (strategy.mode, strategy.collective_mode) == ("collective", "local_sgd")
    assert strategy.use_hierarchical_allreduce
    assert strategy.hierarchical_allreduce_inter_nranks == 2
    strategy = GPUStrategy(dist_config=[LocalSGD(), NCCL2Mode()]).strategy
    assert (strategy.mode, strategy.collective_mode) == ("nccl2", None)
    with pytest.raises(TypeError, match="is no setting"):
        GPUStrategy(["nccl2"])


def test_heterogeneous_optimizers_compile_and_transpile(loss: Any) -> None:
    algorithm = gpu()
    strategy = GPUStrategy([NumThreadsConfig(32)], [CollectiveMode(), GradAllreduce()])
    optimizer = strategy.setup_optimizer(algorithm, fluid.optimizer.SGD(0.1))
    assert isinstance(optimizer, fleet.HeterogeneousDistributedOptimizer)
    optimizer.minimize(loss)
    assert "c_allreduce_sum" in kinds(algorithm.main_program)


def test_without_a_strategy_the_defaults_apply(loss: Any) -> None:
    algorithm = gpu()
    optimizer = algorithm.distributed_optimizer(fluid.optimizer.SGD(0.1), strategy=None)
    optimizer._loss = loss
    main, startup = loss.block.program, fluid.default_startup_program()
    fluid.optimizer.SGD(0.1).minimize(loss)
    compiled = optimizer._try_to_compile(startup, main)
    assert isinstance(compiled, fluid.CompiledProgram) and compiled.program is main
    assert kinds(startup)[-1] == "gen_nccl_id"
    with programs.fresh() as (main, startup):
        fluid.optimizer.SGD(0.1).minimize(programs.mlp())
        optimizer._transpile(startup, main)
        assert kinds(startup)[-1] == "gen_nccl_id"
    with pytest.raises(RuntimeError, match="call minimize"):
        gpu().distributed_optimizer(fluid.optimizer.SGD(0.1))._try_to_compile(
            fluid.Program(), fluid.Program()
        )


def test_a_missing_gpu_is_noted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(algorithms, "is_compiled_with_cuda", lambda: False)
    monkeypatch.setattr(fleet.GPUDistributedAlgorithm, "_noted", False)
    gpu()
    gpu()
    assert capsys.readouterr().err.count("no GPU here; collectives run on CPUs, over Gloo") == 1


def test_the_quick_start_of_openks_in_one_process(loss: Any, tmp_path: Path) -> None:
    algorithm = gpu(free_endpoints(1))
    strategy = GPUStrategy([NumThreadsConfig(32)], [CollectiveMode(), GradAllreduce()])
    strategy.setup_optimizer(algorithm, fluid.optimizer.Adagrad(0.01)).minimize(loss)
    executor = fluid.Executor()
    executor.run(algorithm.startup_program)
    actual = [
        executor.run(algorithm.main_program, feed, [loss])[0].item() for feed in programs.batches(3)
    ]
    with programs.fresh():
        alone = programs.mlp()
        fluid.optimizer.Adagrad(0.01).minimize(alone)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        expected = [executor.run(feed=feed, fetch_list=[alone])[0] for feed in programs.batches(3)]
    np.testing.assert_allclose(actual, np.ravel(expected), rtol=1e-6)


# ---- the launcher


@pytest.mark.parametrize(
    ("given", "mode", "rest"),
    [
        ("--mode cpu --worker_num 2 --server_num 1 --log_dir d t.py --mode x", "cpu",
         "--worker_num 2 --server_num 1 --log_dir d t.py --mode x"),
        ("--mode gpu --worker_num 2 t.py -v", "gpu", "--nproc_per_node 2 t.py -v"),
        ("t.py", "cpu", "t.py"),
    ],
)  # fmt: skip
def test_the_launcher_passes_flags_on(given: str, mode: str, rest: str) -> None:
    assert launcher.command_line(given.split()) == (mode, rest.split())


def test_the_launcher_names_a_wrong_mode(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launcher.main(["--mode", "tpu", "t.py"])
    assert "invalid choice: 'tpu'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        launcher.main(["--mode", "cpu", "absent.py"])
    assert "absent.py is no file" in capsys.readouterr().err
