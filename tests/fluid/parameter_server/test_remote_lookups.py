"""Programs written by hand that ask live servers for rows of a table, by attributes of 1.8.5."""

import threading

import numpy as np
import pytest

import fluid
from fluid import parameter_server
from fluid.cli.main import main as command_line
from fluid.communicator import Communicator, DistributedMode
from fluid.parameter_server.saving import merged_values
from tests.fluid.parameter_server import role, threads
from tests.fluid.parameter_server.processes import make_job

CPU = fluid.CPUPlace()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two live servers with the blocks of the table `shared`, and what the trainer knows of it."""
    created = make_job(tmp_path_factory.mktemp("remote"), "word2vec", "sgd", 1, 2)
    running = [
        threading.Thread(target=threads.serve, args=(created, n), daemon=True) for n in (0, 1)
    ]
    for each in running:
        each.start()
    with threads.BUILDING:
        transpiler, main, startup, *_ = role.transpiled(created, 0)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    cut = transpiler.sharding_plan.of("shared")
    attrs = {
        "remote_prefetch": True,
        "table_names": [part.name for part in cut.slices],
        "epmap": cut.endpoints,
        "height_sections": cut.rows,
        "trainer_id": 0,
    }
    assert len(cut.slices) == 2
    yield created, attrs, merged_values(main)["shared"], main
    parameter_server.complete(main, executor)
    for each in running:
        each.join(20)
        assert not each.is_alive()


def program(kind, inputs, outputs, attrs, table):
    """A program of one op on a table."""
    created = fluid.Program()
    block = created.global_block()
    for name, value in inputs.items():
        block.create_var(name=name, shape=value.shape, dtype=str(value.dtype), is_data=True)
    slot = "Weight" if kind == "nce" else "W"
    block.create_var(name="table", shape=table.shape, dtype="float32", persistable=True)
    for name in outputs:
        block.create_var(name=name, dtype="float32")
    read = {name: name for name in inputs} | {slot: "table"}
    block.append_op(kind, inputs=read, outputs={name: name for name in outputs}, attrs=attrs)
    return created


def both(kind, inputs, outputs, attrs, remote, table):
    """The first output with the table here, and with the table on servers."""
    results = []
    for more in ({}, remote):
        scope, executor = fluid.Scope(), fluid.Executor()
        scope.var("table").get_tensor().set(np.zeros_like(table) if more else table, CPU)
        created = program(kind, inputs, outputs, attrs | more, table)
        run = {"feed": inputs, "fetch_list": outputs[:1], "scope": scope}
        results.append(executor.run(created, **run)[0])
    return results


def test_lookups(job):
    remote, table = job[1:3]
    ids = {"Ids": np.array([[1999], [0], [1999], [1000]])}
    here, there = both("lookup_table", ids, ["Out"], {"padding_idx": 0}, remote, table)
    np.testing.assert_array_equal(here, there)


def test_nce(job):
    remote, table = job[1:3]
    random = np.random.default_rng(2)
    inputs = {
        "Input": random.standard_normal((3, 16), np.float32),
        "Label": np.array([[0], [1500], [1999]]),
        "Bias": random.standard_normal((2000, 1), np.float32),
    }
    attrs = {
        "num_total_classes": 2000,
        "num_neg_samples": 4,
        "custom_neg_classes": [5, 999, 1000, 7],
    }
    outputs = ["Cost", "SampleLogits", "SampleLabels"]
    here, there = both("nce", inputs, outputs, attrs, remote, table)
    np.testing.assert_allclose(here, there, rtol=1e-6)


def test_hierarchical_sigmoid(job):
    remote, table = job[1:3]
    inputs = {
        "X": np.random.default_rng(3).standard_normal((3, 16), np.float32),
        "Label": np.array([[0], [1500], [1999]]),
    }
    attrs = {"num_classes": 2000}
    here, there = both("hierarchical_sigmoid", inputs, ["Out", "PreOut"], attrs, remote, table)
    np.testing.assert_allclose(here, there, rtol=1e-6)


def test_status_of_live_servers(job, capsys):
    endpoints = job[0]["endpoints"]
    assert command_line(["ps", "status", ",".join(endpoints)]) == 0
    shown = capsys.readouterr().out
    for endpoint in endpoints:
        assert f"server {endpoint}  pid " in shown
    for text in ("steps 0, ", "trainer 0: known, last seen", "shared.block0", "received "):
        assert text in shown
    assert command_line(["ps", "status", endpoints[0], "--json"]) == 0
    assert capsys.readouterr().out.startswith('{"endpoint": ')


def test_a_program_without_servers_sends_nothing():
    with pytest.warns(UserWarning, match="nothing is sent"):
        created = Communicator(fluid.Program(), DistributedMode.HALF_ASYNC)
    created.start()
    assert created.is_running()
    created.stop()
    assert not created.is_running()


def test_a_synchronous_communicator_only_starts_and_stops(job):
    created = Communicator(job[3])
    assert not created.is_running()
    created.start()
    created.start()
    assert created.is_running()
    created.stop()
    assert not created.is_running()
