"""`fleet.pslib`: roles and gradients; what needs PSLIB's servers says so when it is called."""

import pytest

import fluid
from fleet.pslib import DownpourOptimizer, PSLib, fleet, fleet_embedding
from fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker


@pytest.fixture
def worker():
    roles = UserDefinedRoleMaker(1, Role.WORKER, 2, ["127.0.0.1:7164"])
    algorithm = PSLib()
    algorithm.init(roles)
    return algorithm


def test_a_worker_has_a_role_and_files(worker):
    assert (worker.is_worker(), worker.is_server(), worker.worker_index()) == (True, False, 1)
    assert worker.split_files(["a", "b", "c"]) == ["c"]


def test_minimize_appends_gradients_of_several_losses(worker, fresh_programs):
    x = fluid.data("x", [-1, 2])
    losses = [
        fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=name, bias_attr=False)) for name in "ab"
    ]
    optimizer = worker.distributed_optimizer(fluid.optimizer.Adam(0.1), strategy={})
    updates, pairs = optimizer.minimize(losses)
    assert updates is None and [pair[0][0].name for pair in pairs] == ["a", "b"]
    kinds = [op.type for op in fluid.default_main_program().global_block().ops]
    assert kinds.count("mul_grad") == 2 and "adam" not in kinds
    with pytest.raises(ValueError, match="1 losses and 2 scopes"):
        optimizer.minimize(losses[0], [fluid.Scope(), fluid.Scope()])


def test_what_needs_servers_raises(worker):
    for call in (worker.init_worker, worker.run_server, fleet_embedding("click").__enter__):
        with pytest.raises(NotImplementedError, match="servers of PSLIB, which are closed source"):
            call()
    with pytest.raises(RuntimeError, match="no role yet"):
        fleet.worker_num()
    with pytest.raises(TypeError, match=r"fluid\.optimizer"):
        DownpourOptimizer("adam")
