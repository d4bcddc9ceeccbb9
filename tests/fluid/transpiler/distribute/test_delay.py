"""Delay compensation (DC-ASGD) of a server's program, against its formula in NumPy."""

import types

import numpy as np

import compiler
import fluid
from fluid.parameter_server.serving import ServedBlocks
from tests.fluid.transpiler.distribute.server_job import SERVERS, transpiled
from tests.fluid.transpiler.test_distribute_transpiler import config, wide

RATE = 0.1
FIRST = SERVERS.split(",")[0]


def service():
    """What the first server serves: `fc_b` and a block of `fc_w`."""
    settings = config(enable_dc_asgd=True, sync_mode=False)
    build = wide(lambda: fluid.optimizer.SGD(RATE))
    transpiler = transpiled(build, config=settings, sync_mode=False)[0]
    main, startup = transpiler.get_pserver_programs(FIRST)
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    blocks = ServedBlocks(
        main, main.global_block().ops[-1], scope, types.SimpleNamespace(sums=None)
    )
    blocks.compile_for(
        fluid.CPUPlace(),
        lambda program, feed, fetch: compiler.compile(program, feed=feed, fetch=fetch),
    )
    return blocks.service(0)


def test_a_stale_gradient_is_corrected_by_how_far_the_parameter_moved():
    created = service()
    random = np.random.default_rng(5)
    w = created.variables()["fc_b"].astype(np.float64)
    kept = {0: w.copy(), 1: w.copy()}
    for trainer in (0, 1, 1, 0, 1):
        g = random.standard_normal(1000).astype(np.float32)
        created.update({"fc_b@GRAD": g}, trainer)
        corrected = g + g.astype(np.float64) * g * (w - kept[trainer])
        w = w - RATE * corrected
        np.testing.assert_allclose(created.variables()["fc_b"], w, rtol=1e-5, atol=1e-6)
        if trainer == 0:
            created.received("fc_b", trainer)
            kept[trainer] = w.copy()
    assert not np.allclose(kept[0], kept[1])
