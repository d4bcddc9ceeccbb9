"""Bytes that are predicted are those that servers count."""

import numpy as np
import pytest

import fluid
from fluid.parameter_server import serving
from fluid.parameter_server.capacity import capacity
from runtime.ps.capacity import servers_needed
from tests.fluid.parameter_server import nets, role, threads
from tests.fluid.parameter_server.processes import make_job

FEW, MANY = 3, 8  # numbers of steps are part of some messages: one digit each


def counted(monkeypatch, job, steps):
    """Bytes that each server of a job received and sent, by endpoint."""
    servers = []

    class Noted(serving.Server):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            servers.append(self)

    monkeypatch.setattr(serving, "Server", Noted)
    threads.trained(job | {"steps": steps})
    return {
        server.endpoint: np.array([server.traffic.received, server.traffic.sent])
        for server in servers
    }


def slice_rows(transpiler, tables, batch):
    """How many different rows of each slice a batch reads."""
    results = {}
    for shards in transpiler.sharding_plan.shards:
        ids = [np.unique(batch[name]) for name in tables.get(shards.param, ())]
        for part in shards.slices if ids else ():
            rows = np.unique(np.concatenate(ids)) - part.start
            results[part.name] = int(((rows >= 0) & (rows < part.rows)).sum())
    return results


@pytest.mark.parametrize(
    ("model", "tables"),
    [
        pytest.param("two_layers_wide", {}, marks=pytest.mark.slow),
        ("word2vec", {"shared": ("word0", "word1", "word2", "word3")}),
    ],
)
def test_bytes_predicted_are_bytes_counted(tmp_path, monkeypatch, model, tables):
    monkeypatch.setenv("FLUID_PS_HEARTBEAT_SECONDS", "1000")  # heartbeats are bytes too
    job = make_job(tmp_path, model, "adam", rows=12)
    few, many = (counted(monkeypatch, job, steps) for steps in (FEW, MANY))
    with threads.BUILDING:
        transpiler, _, _, _, draw = role.transpiled(job, 0)
    batches = role.batches(job | {"steps": MANY}, draw)[FEW:]
    expected = {endpoint: np.zeros(2, int) for endpoint in job["endpoints"]}
    for batch in batches:
        for number in range(job["trainers"]):
            share = {name: np.array_split(v, job["trainers"])[number] for name, v in batch.items()}
            for load in capacity(transpiler, slice_rows(transpiler, tables, share)).servers:
                expected[load.endpoint] += [load.up.nbytes, load.down.nbytes]
    for endpoint, found in expected.items():
        assert (many[endpoint] - few[endpoint]).tolist() == found.tolist()


def test_a_job_reports_what_it_needs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss, _, _ = nets.two_layers_wide(fluid)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers="a:1,b:2", trainers=10)
        result = capacity(transpiler)
    assert 8_016_008 <= result.up + result.down <= 8_016_008 * 1.001
    assert (
        sum(server.held for server in result.servers) == 2 * 4_008_004 - 2 * 4_000 + 2 * 4 + 8_000
    )
    assert result.servers_needed(50.0, 1.25e9) == servers_needed(
        10, result.up, result.down, 50.0, 1.25e9
    )
    assert result.servers_needed(50.0, 1.25e9) == 2
    assert "10 trainers; MB of one trainer and step:" in str(result)


def test_jobs_without_steps_are_rejected():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss, _, _ = nets.two_layers_wide(fluid)
        fluid.optimizer.SGD(0.1).minimize(loss)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers="a:1", trainers=2, sync_mode=False)
        with pytest.raises(ValueError, match="have no steps: transpile with sync_mode=True"):
            capacity(transpiler)
