"""`Executor.explain`: what ran explains itself, from the cache and at the sizes it ran with."""

import json
import re

import numpy as np
import pytest

import compiler
import fluid
from fluid import profiler
from runtime.profiler import MARK
from tests.support.nets import zoo


@pytest.fixture
def trained():
    """A program that learns, an executor that ran it once, and how to run it again."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        y = fluid.layers.fc(fluid.layers.fc(x, 8, act="relu"), 1)
        loss = fluid.layers.mean(fluid.layers.square(y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)

        def run(rows, fetch=(loss,)):
            return exe.run(main, feed={"x": np.ones((rows, 4), "float32")}, fetch_list=list(fetch))

        yield exe, main, loss, y, run


def test_explain_uses_the_sizes_of_the_run(trained):
    exe, main, _, _, run = trained
    for rows in (5, 7):
        run(rows)
        seen = exe.explain(main)
        assert list(seen.sizes.values()) == [rows]
    assert "fuse_pointwise" in str(seen)
    assert "arena ÷ live" in str(seen)
    assert sum(stage.milliseconds for stage in seen.stages) > 0
    page = seen.html()
    assert "test_explanation.py:" in page
    assert "fluid.layers.fc(x, 8" in page


def test_a_cache_hit_explains_itself_and_nothing_is_compiled_for_it(trained):
    exe, main, _, _, run = trained
    run(5)
    clone = main.clone()
    before = exe.counters.compiles
    first = exe.explain(main)
    exe.run(clone, feed={"x": np.ones((5, 4), "float32")}, fetch_list=["mean_0.tmp_0"])
    assert exe.counters.compiles == before
    assert exe.explain(clone).html() == first.html()
    assert run(5)
    assert exe.counters.compiles == before


def test_explain_selects_a_module_by_fetches(trained):
    exe, main, loss, y, run = trained
    run(5)
    run(5, fetch=[loss, y])
    assert len(exe.explain(main).compiled.graph.results) == 2
    assert len(exe.explain(main, fetch_list=[loss]).compiled.graph.results) == 1
    with pytest.raises(RuntimeError, match=r"ran no such program and fetched fc_1\.tmp_1"):
        exe.explain(main, fetch_list=[y])


def test_explain_needs_a_run(trained):
    exe, main, _, _, run = trained
    with pytest.raises(RuntimeError, match="ran no such program: there is nothing to explain"):
        exe.explain(main)
    run(5)
    exe.explain(main)
    with pytest.raises(RuntimeError, match="pass the scope it ran in"):
        exe.explain(main, scope=fluid.Scope())
    with fluid.program_guard(main):
        fluid.layers.data("more", [1])
    with pytest.raises(RuntimeError, match="nothing to explain"):
        exe.explain(main)


def test_a_run_under_the_profiler_is_explained_too(trained, tmp_path):
    exe, main, _, _, run = trained
    with profiler.profiler("CPU", profile_path=str(tmp_path / "profile")):
        run(5)
        seen = exe.explain(main)
    assert MARK not in seen.module.source


@pytest.mark.parametrize("name", ["while_in_while", "while_with_array", "cond_in_while"])
def test_loops_and_their_gradients_are_explained(name):
    from tests.fluid.layers import control_flow_models

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = getattr(control_flow_models, name)(fluid)
        fluid.optimizer.SGD(0.1).minimize(loss)
    feeds = [v for v in main.global_block().vars.values() if getattr(v, "is_data", False)]
    module = compiler.compile(main, feed=[v.name for v in feeds], fetch=[loss])
    page = compiler.explain(module).html()
    data = json.loads(re.search(r'id="data">([^<]*)<', page)[1])
    assert {"loop", "unwind"} & {node[0] for node in data["nodes"]}


@pytest.mark.parametrize("name", ["static_rnn_lm", "sentiment_stacked_lstm", "unet"])
def test_record_compiles_to_the_same_module(name):
    main = zoo.build(fluid, name, **zoo.small(name)).main
    feeds = [v.name for v in main.global_block().vars.values() if getattr(v, "is_data", False)]
    module = compiler.compile(main, feed=feeds)
    assert compiler.explain(module).module.digest == module.digest
