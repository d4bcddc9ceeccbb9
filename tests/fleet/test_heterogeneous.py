"""Dense parameters by all-reduce and tables on servers, in one program: equals one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleet
import fluid
from fleet.strategies import StrategyFactory
from tests.fleet import heterogeneous_job as jobs
from tests.fleet import programs
from tests.fluid.parameter_server import nets, role
from tests.golden import zoo
from tests.support.ports import free_endpoints

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
SERVERS = ["127.0.0.1:6170", "127.0.0.1:6171"]
TRAINERS = "127.0.0.1:6172,127.0.0.1:6173"
TABLES = {"deep", "wide"}


@pytest.fixture(autouse=True)
def trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", TRAINERS)


@pytest.fixture
def loss() -> Iterator[Any]:
    with programs.fresh():
        yield nets.ctr_wide_deep(fluid)[0]


def an_algorithm(kind: int = fleet.Role.WORKER, workers: int = 2) -> Any:
    algorithm = fleet.GPUDistributedAlgorithm()
    algorithm.init(fleet.UserDefinedRoleMaker(0, kind, workers, SERVERS))
    return algorithm


def minimized(loss: Any, optimizer: Any = None, algorithm: Any = None, **fields: Any) -> Any:
    """The algorithm after `minimize` with some fields of the strategy."""
    algorithm = algorithm or an_algorithm()
    strategy = fleet.GPUStrategy(
        dist_config=[fleet.TablesOnServers(None, jobs.no_waiting())]
    ).strategy
    for name, value in fields.items():
        setattr(strategy, name, value)
    optimizer = optimizer or fluid.optimizer.SGD(0.1)
    algorithm.distributed_optimizer(optimizer, strategy).minimize(loss)
    return algorithm


def named(program: Any, kind: str, slot: str = "X") -> set[str]:
    """What ops of a kind read."""
    results = [op for op in program.global_block().ops if op.type == kind]
    return {name for op in results for name in op.inputs[slot]}


# ---- programs


def test_one_program_reduces_dense_gradients_and_sends_those_of_tables(loss: Any) -> None:
    algorithm = minimized(loss)
    program = algorithm.main_program
    assert program is loss.block.program
    dense = {param.name for param in program.all_parameters()} - TABLES
    assert named(program, "c_allreduce_sum") == {f"{name}@GRAD" for name in dense}
    assert named(program, "sgd", "Param") == dense
    assert named(program, "distributed_lookup_table", "W") == TABLES
    assert all(name.startswith(("deep@", "wide@")) for name in named(program, "send"))
    startup = algorithm.startup_program
    assert named(startup, "c_broadcast") == dense
    assert {"fake_init", "c_comm_init"} <= {op.type for op in startup.global_block().ops}


def test_only_servers_store_tables(loss: Any) -> None:
    algorithm = minimized(loss, algorithm=an_algorithm(fleet.Role.SERVER))
    updated = {
        op.inputs["Param"][0].partition(".")[0]
        for block in algorithm.main_program.blocks
        for op in block.ops
        if op.type == "sgd"
    }
    assert updated and updated <= TABLES
    created = {n for op in algorithm.startup_program.global_block().ops for n in op.writes()}
    assert not any(name.startswith("fc_") for name in created)


@pytest.mark.parametrize(
    ("choice", "held"),
    [
        (["deep"], {"deep"}),
        (lambda param: param.shape[0] == 300, {"wide"}),
        (["wide", "fc_0.b_0"], {"wide", "fc_0.b_0"}),
    ],
)
def test_the_strategy_chooses_for_each_parameter(loss: Any, choice: Any, held: set[str]) -> None:
    program = minimized(loss, params_on_servers=choice).main_program
    params = {param.name for param in program.all_parameters()}
    assert named(program, "sgd", "Param") == params - held
    reduced = {name.removesuffix("@GRAD") for name in named(program, "c_allreduce_sum")}
    assert reduced == params - held


def test_workers_average_parameters_with_local_sgd(loss: Any) -> None:
    program = minimized(loss, use_local_sgd=True).main_program
    dense = {param.name for param in program.all_parameters()} - TABLES
    assert named(program, "c_allreduce_sum") == dense


def test_a_worker_alone_reduces_nothing(loss: Any) -> None:
    program = minimized(loss, algorithm=an_algorithm(workers=1)).main_program
    assert not named(program, "c_allreduce_sum") and named(program, "send")


def test_without_servers_it_is_the_collective_fleet(loss: Any) -> None:
    algorithm = fleet.GPUDistributedAlgorithm()
    algorithm.init(fleet.UserDefinedCollectiveRoleMaker(0, SERVERS))
    minimized(loss, algorithm=algorithm)
    assert isinstance(algorithm.main_program, fluid.CompiledProgram)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"params_on_servers": ["deeep"]}, ValueError, "no parameter 'deeep'; .*deep"),
        ({"params_on_servers": "deep"}, TypeError, "names of parameters, a predicate"),
        ({"params_on_servers": []}, ValueError, "none is chosen; there are .*deep"),
        ({"server_strategy": "sync"}, TypeError, "must be an instance of Distribute"),
        ({"server_strategy": StrategyFactory.create_geo_strategy()}, ValueError, "geo_sgd_mode"),
        ({"use_amp": True}, AssertionError, "use parameter servers and use_amp together"),
    ],
)
def test_wrong_strategies_are_named(loss: Any, fields: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        minimized(loss, **fields)


def test_a_clip_by_global_norm_cannot_be_over_both(loss: Any) -> None:
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    with pytest.raises(ValueError, match="global norm cannot be over parameters on servers and"):
        minimized(loss, fluid.optimizer.SGD(0.1, grad_clip=clip))


def test_the_rendezvous_needs_an_endpoint_for_each_worker(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6172")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ENDPOINTS is 1 endpoints, but there are"):
        minimized(loss)
    monkeypatch.delenv("PADDLE_TRAINER_ENDPOINTS")
    with pytest.raises(ValueError, match=r"PADDLE_TRAINER_ENDPOINTS is not set.*fluid launch_ps"):
        an_algorithm()._role.rendezvous_endpoints()


# ---- numbers

CHOICE = {"params_on_servers": ["deep", "fc_0.w_0"]}
JOBS = [
    ("ctr_wide_deep", "adam+l2+clip_value@piecewise", 2, {}),
    ("far_words", "sgd", 2, {}),
    pytest.param("ctr_wide_deep", "adagrad", 1, {}, marks=pytest.mark.slow),
    pytest.param("ctr_wide_deep", "momentum+clip_norm", 2, CHOICE, marks=pytest.mark.slow),
]


@pytest.mark.ps
@pytest.mark.parametrize(("model", "optimizer", "servers", "fields"), JOBS)
def test_two_workers_equal_one_process(
    model: str, optimizer: str, servers: int, fields: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = free_endpoints(servers + 2)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", ",".join(free[:2]))
    job = jobs.make_job(model, optimizer, free[2:])
    expect_equal(jobs.trained(job, **fields), *role.alone(job))


def expect_equal(found: Any, expected: dict[str, Any], losses: list[float]) -> None:
    mean = np.mean([each["losses"] for each in found], axis=0)
    np.testing.assert_allclose(mean, losses, rtol=1e-5, atol=1e-6)
    for each in found:
        assert each.keys() >= expected.keys() - {"shared"}
        for name in sorted(expected.keys() & each.keys()):
            np.testing.assert_allclose(each[name], expected[name], atol=1e-5, err_msg=name)


@pytest.mark.ps
def test_workers_of_asynchronous_servers_have_the_same_dense_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = free_endpoints(4)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", ",".join(free[:2]))
    strategy = StrategyFactory.create_async_strategy()
    strategy.set_program_config({"wait_port": False})
    job = jobs.make_job("ctr_wide_deep", "sgd", free[2:], steps=12)
    first, second = jobs.trained(job, server_strategy=strategy)
    dense = [name for name in first if name.startswith("fc_")]
    assert dense
    for name in dense:
        np.testing.assert_allclose(first[name], second[name], atol=1e-6, err_msg=name)
    expected = role.alone(job)[1]
    assert abs(np.mean([first["losses"], second["losses"]]) - np.mean(expected)) < 0.05


@pytest.mark.ps
def test_processes_under_launch_ps_equal_one_process(tmp_path: Path) -> None:
    servers = ",".join(free_endpoints(2))
    command = [sys.executable, "-m", "fluid", "launch_ps", "--worker_num", "2"]
    command += ["--endpoints", servers, "--log_dir", str(tmp_path / "logs")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "60000"}
    done = subprocess.run(
        [*command, str(SCRIPTS / "train_heterogeneous.py"), str(tmp_path)],
        env=environ, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    job = {"model": "ctr_wide_deep", "optimizer": "adagrad", "rows": 6, "steps": 20}
    expected, losses = alone_with(job, fluid.optimizer.Adagrad(0.05))
    actual = json.loads((tmp_path / "losses.json").read_text())
    np.testing.assert_allclose(actual, losses, atol=1e-5)
    with programs.fresh():
        for folder in ("state", "model"):
            loaded = load_values(tmp_path / folder, expected)
            for name, value in expected.items():
                np.testing.assert_allclose(loaded[name], value, atol=1e-5, err_msg=name)
    assert (tmp_path / "state").joinpath("deep_moment_0").is_file()


def alone_with(job: Any, optimizer: Any) -> Any:
    """Parameters and losses of one process on whole batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "optimizer", lambda *_: optimizer)
        return role.alone(job)


def load_values(folder: Path, like: dict[str, Any]) -> dict[str, Any]:
    """Variables of saved files, by name."""
    block = fluid.default_main_program().global_block()
    vars = [
        block.create_var(name=name, shape=value.shape, dtype="float32", persistable=True)
        for name, value in like.items()
    ]
    fluid.io.load_vars(fluid.Executor(), str(folder), vars=vars)
    scope = fluid.global_scope()
    return {name: np.array(scope.find_var(name).get_tensor()) for name in like}
