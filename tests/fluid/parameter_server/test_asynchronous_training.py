"""Trainers that do not wait for each other learn what synchronous ones do."""

import pytest

import fluid
from fluid.demo.digits import load_digits
from tests.fluid.parameter_server import processes, threads
from tests.fluid.parameter_server.processes import make_job
from tests.fluid.parameter_server.role import alone, build

BAND = 0.1
"""How far the loss on held-out digits may be from that of synchronous training (docs)."""
SPLIT = {"sync_mode": False, "runtime_split_send_recv": True}
MODES = {
    "half_async_server": {"sync_mode": False},
    "async": SPLIT,
    "half_async": {**SPLIT, "half_async": True},
    "geo": {"sync_mode": False, "geo_sgd_mode": True, "geo_sgd_need_push_nums": 5},
    "dc_asgd": {"sync_mode": False, "enable_dc_asgd": True},
}


def described(folder, mode, **more):
    """A job of one of the modes."""
    config = MODES.get(mode, {})
    talks = "runtime_split_send_recv" in config or "geo_sgd_mode" in config
    return make_job(
        folder, config=config, sync=mode == "sync", communicator=talks, optimizer="sgd", **more
    )


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_training_matches_one_process(tmp_path, mode):
    # on two devices a trainer makes two steps of each batch, which has twice the rows
    twice = {"devices": 2, "steps": 50, "rows": 128} if mode in ("async", "geo") else {}
    job = described(tmp_path, mode, model="digits", rows=64, steps=100, rate=0.1)
    reached = held_out_loss(job, threads.trained(job | twice)[0])
    assert abs(reached - held_out_loss(job, alone(job)[0])) <= 1.5 * BAND


@pytest.mark.slow
def test_they_reach_the_loss_of_synchronous_training(tmp_path):
    names = ["sync", *MODES]
    size = {"rows": 96, "steps": 160, "rate": 0.1}
    jobs = [described(tmp_path / name, name, model="digits", **size) for name in names]
    result = processes.trained(*jobs, seconds=240.0)
    reached = {
        name: held_out_loss(job, each[0])
        for name, job, each in zip(names, jobs, result, strict=True)
    }
    print({name: round(loss, 3) for name, loss in reached.items()})
    assert reached["sync"] < 0.5
    assert {n: loss for n, loss in reached.items() if abs(loss - reached["sync"]) > BAND} == {}


def held_out_loss(job, parameters):
    """The mean loss on digits that nobody trained on."""
    main, startup, loss, _ = build(job)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for param in main.all_parameters():
        scope.find_var(param.name).get_tensor().set(parameters[param.name], fluid.CPUPlace())
    digits = load_digits()[1]
    feed = {"img": digits.pixels, "label": digits.labels}
    (value,) = executor.run(main.clone(for_test=True), feed=feed, fetch_list=[loss], scope=scope)
    return float(value[0])
