"""The end of a job: no server ends before a trainer that is killed meanwhile could complete."""

import time

import numpy as np
import pytest

from runtime.errors import WireError
from runtime.ps import settings
from runtime.ps.serving.server import Server
from runtime.ps.settings import Settings
from tests.runtime.ps.world import FAST, World, receive, send, world
from tests.support.ports import free_endpoint

LONG = FAST | {"lost_after": 60.0, "reconnect": 60.0}


def ended(thread, seconds=5.0):
    thread.join(seconds)
    return not thread.is_alive()


def test_to_complete_again_changes_nothing(tmp_path):
    with world(2, snapshot_dir=str(tmp_path)) as created:
        trainers = [created.trainer(0), created.trainer(1)]
        for trainer in trainers:
            send(trainer, created.endpoint, 1.0)
        for trainer in trainers:
            receive(trainer, created.endpoint)
        trainers[0].complete()
        again = created.trainer(0)
        assert again.step == 1
        np.testing.assert_array_equal(receive(again, created.endpoint), -1)
        again.complete()
        send(trainers[1], created.endpoint, 1.0)
        np.testing.assert_array_equal(receive(trainers[1], created.endpoint), -2)
        trainers[1].complete()
        assert ended(created.thread) and not created.errors


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
    created = World(1, Settings.from_env({}, FAST | {"reconnect": 1.0}), endpoints, 0)
    trainer = created.trainer(0)
    assert trainer.step == 0
    trainer.complete()
    assert ended(created.thread) and not created.errors


def test_with_policy_wait_servers_outlive_a_trainer_that_is_killed_when_it_completed():
    with world(1, **{**LONG, "policy": "wait"}) as created:
        killed = created.trainer(0)
        send(killed, created.endpoint, 1.0)
        receive(killed, created.endpoint)
        killed.complete()
        assert not ended(created.thread, 0.5)
        again = created.trainer(0)
        assert again.step == 1
        again.complete()
        again.leave()
        assert ended(created.thread) and not created.errors


def test_with_policy_wait_servers_wait_a_stated_time_for_the_end_of_processes():
    with world(1, **{**LONG, "policy": "wait", "lost_after": 0.5}) as created:
        trainer = created.trainer(0)
        assert trainer.step == 0
        trainer.complete()
        assert ended(created.thread) and not created.errors


def test_a_restarted_server_knows_who_has_completed(tmp_path):
    with world(2, snapshot_dir=str(tmp_path), snapshot_steps=100, **LONG) as created:
        trainers = [created.trainer(0), created.trainer(1)]
        for trainer in trainers:
            send(trainer, created.endpoint, 1.0)
        for trainer in trainers:
            receive(trainer, created.endpoint)
        trainers[0].complete()
        created.server._path = None  # it is killed: nothing is written at its end
        created.end()
        created.variables["w"][...] = 99
        created.start()
        send(trainers[1], created.endpoint, 1.0)
        np.testing.assert_array_equal(receive(trainers[1], created.endpoint), -2)
        trainers[1].complete()
        assert ended(created.thread) and not created.errors
    assert not list(tmp_path.iterdir())


def test_completion_is_told_to_servers_only():
    shutdown = Server(["a:1", "b:1"], 0, Settings())._shutdown
    assert shutdown.asked("b:1") is False  # it asks again
    for stranger in ("a:1", "c:1"):
        with pytest.raises(WireError, match="not another server"):
            shutdown.asked(stranger)


def test_with_policy_wait_a_server_without_trainers_ends_by_the_deadline():
    with world(2, policy="wait", deadline=0.3) as created:  # as one started again after the end
        assert ended(created.thread, 2)
        assert f"no trainer has connected to server {created.endpoint} within 0.3 s" in str(
            created.errors[0]
        )


def test_with_policy_wait_a_trainer_that_was_never_seen_is_named():
    with world(2, policy="wait", deadline=0.5) as created:
        trainer = created.trainer(0)
        send(trainer, created.endpoint, 1.0)
        with pytest.raises(WireError, match="trainer 1 has not connected to server"):
            receive(trainer, created.endpoint)
        trainer.close()
        assert ended(created.thread)


def test_other_policies_do_not_limit_when_trainers_start():
    with world(1, deadline=0.2) as created:
        assert not ended(created.thread, 0.5)


DOES = {
    "complete": lambda trainer, endpoint: trainer.complete(),
    "read": lambda trainer, endpoint: trainer.read(endpoint, ["w"]),
    "receive": receive,
    "rows": lambda trainer, endpoint: trainer.prefetch(["t"], [endpoint], [np.array([1])], 0),
}


@pytest.mark.parametrize("does", DOES)
def test_a_trainer_whose_server_has_gone_ends_within_seconds(does, monkeypatch):
    monkeypatch.setattr(settings, "GONE_SECONDS", 0.3)
    with world(1, reconnect=60.0, deadline=180.0) as created:
        trainer = created.trainer(0)
        send(trainer, created.endpoint, 1.0)
        receive(trainer, created.endpoint)
        if does == "receive":
            send(trainer, created.endpoint, 1.0)
            trainer.remote(created.endpoint).stream.step -= 1  # the answer has not arrived
            monkeypatch.setattr(created.server.shard, "wait", lambda *_: False)
        created.end()
        began = time.monotonic()
        with pytest.raises(WireError, match=f"server {created.endpoint} does not answer"):
            DOES[does](trainer, created.endpoint)
        trainer.abort("it ends")
        assert time.monotonic() - began < 6


def test_trainers_wait_for_servers_that_may_return():
    assert Settings().away == settings.GONE_SECONDS
    assert Settings(reconnect=2.0).away == 2.0
    assert Settings(policy="wait").away == Settings(snapshot_dir="folder").away == 60.0
