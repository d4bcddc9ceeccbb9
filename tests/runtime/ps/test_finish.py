"""The end of a job: no server ends before a trainer that is killed meanwhile could complete."""

import numpy as np
import pytest

from runtime.errors import WireError
from runtime.ps.serving.server import Server
from runtime.ps.settings import Settings
from tests.runtime.ps.world import FAST, World, free_endpoint, receive, send, world

LONG = FAST | {"lost_after": 60.0, "reconnect": 60.0}


def ended(thread, seconds=5.0):
    thread.join(seconds)
    return not thread.is_alive()


def test_to_complete_again_changes_nothing(tmp_path):
    with world(2, snapshot_dir=str(tmp_path)) as made:
        trainers = [made.trainer(0), made.trainer(1)]
        for trainer in trainers:
            send(trainer, made.endpoint, 1.0)
        for trainer in trainers:
            receive(trainer, made.endpoint)
        trainers[0].complete()
        again = made.trainer(0)
        assert again.step == 1
        np.testing.assert_array_equal(receive(again, made.endpoint), -1)
        again.complete()
        send(trainers[1], made.endpoint, 1.0)
        np.testing.assert_array_equal(receive(trainers[1], made.endpoint), -2)
        trainers[1].complete()
        assert ended(made.thread) and not made.errors


def test_a_server_waits_for_the_others_until_their_trainers_complete():
    endpoints = [free_endpoint(), free_endpoint()]
    worlds = [World(1, Settings.from_env({}, LONG), endpoints, number) for number in (0, 1)]
    first, second = ((made, made.trainer(0)) for made in worlds)
    assert first[1].step == second[1].step == 0
    first[1].complete()
    assert not ended(first[0].thread, 1.0)  # a trainer killed now finds it, and completes again
    again = first[0].trainer(0)
    assert again.step == 0
    again.complete()
    second[1].complete()
    assert ended(first[0].thread) and ended(second[0].thread)
    assert not first[0].errors + second[0].errors


def test_a_server_ends_without_one_that_is_gone():
    endpoints = [free_endpoint(), free_endpoint()]
    made = World(1, Settings.from_env({}, FAST | {"reconnect": 1.0}), endpoints, 0)
    trainer = made.trainer(0)
    assert trainer.step == 0
    trainer.complete()
    assert ended(made.thread) and not made.errors


def test_with_policy_wait_servers_outlive_a_trainer_that_is_killed_when_it_completed():
    with world(1, **{**LONG, "policy": "wait"}) as made:
        killed = made.trainer(0)
        send(killed, made.endpoint, 1.0)
        receive(killed, made.endpoint)
        killed.complete()
        assert not ended(made.thread, 0.5)
        again = made.trainer(0)
        assert again.step == 1
        again.complete()
        again.leave()
        assert ended(made.thread) and not made.errors


def test_with_policy_wait_servers_wait_a_stated_time_for_the_end_of_processes():
    with world(1, **{**LONG, "policy": "wait", "lost_after": 0.5}) as made:
        trainer = made.trainer(0)
        assert trainer.step == 0
        trainer.complete()
        assert ended(made.thread) and not made.errors


def test_a_restarted_server_knows_who_has_completed(tmp_path):
    with world(2, snapshot_dir=str(tmp_path), snapshot_steps=100, **LONG) as made:
        trainers = [made.trainer(0), made.trainer(1)]
        for trainer in trainers:
            send(trainer, made.endpoint, 1.0)
        for trainer in trainers:
            receive(trainer, made.endpoint)
        trainers[0].complete()
        made.server._path = None  # it is killed: nothing is written at its end
        made.end()
        made.variables["w"][...] = 99
        made.start()
        send(trainers[1], made.endpoint, 1.0)
        np.testing.assert_array_equal(receive(trainers[1], made.endpoint), -2)
        trainers[1].complete()
        assert ended(made.thread) and not made.errors
    assert not list(tmp_path.iterdir())


def test_only_another_server_can_report_that_it_has_finished():
    server = Server(["a:1", "b:1"], 0, Settings())
    server._finish.hear("b:1")
    for stranger in ("a:1", "c:1"):
        with pytest.raises(WireError, match="not another server"):
            server._finish.hear(stranger)
