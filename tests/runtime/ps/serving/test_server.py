"""Servers and trainers over sockets: steps, lost trainers, restarts, tokens, TLS."""

import os
import shutil
import subprocess
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from runtime.errors import WireError
from runtime.ps.serving.port_file import port_path
from runtime.ps.settings import Settings
from runtime.ps.status import read_status, status_lines
from runtime.ps.training.trainer import Trainer
from runtime.ps.wire.frames import read_frame
from runtime.ps.wire.packets import pack
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import open_channel, stream_call, unary_call
from tests.runtime.ps.world import FAST, World, receive, send, world


def step(made, trainers, value):
    for trainer in trainers:
        send(trainer, made.endpoint, value)
    return [receive(trainer, made.endpoint) for trainer in trainers]


def test_steps_and_completion():
    with world() as created:
        trainers = [created.trainer(0), created.trainer(1)]
        for count in range(1, 4):
            for found in step(created, trainers, 1.0):
                np.testing.assert_array_equal(found, -count)
        np.testing.assert_array_equal(created.variables["t"][[3, 7, 8], 0], [-6, -3, 0])
        rows = trainers[0].prefetch(["t"], [created.endpoint], [np.array([7, 3])], 0)[0]
        np.testing.assert_array_equal(rows[:, 0], [-3, -6])
        lines = status_lines(read_status(created.endpoint, created.settings))
        assert any("steps 3" in line for line in lines)
        for trainer in trainers:
            trainer.complete()
        created.thread.join(5)
        assert not created.thread.is_alive()
        assert not created.errors


def test_a_server_at_port_0_writes_its_port():
    made = World(1, Settings.from_env({}, FAST), ["127.0.0.1:0"])
    path = port_path(os.getpid())
    end = time.monotonic() + 5
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    endpoint = f"127.0.0.1:{int(path.read_text())}"
    trainer = Trainer(0, [endpoint], made.settings)
    trainer.subscribe({endpoint: ["w"]})
    send(trainer, endpoint, 1.0)
    np.testing.assert_array_equal(receive(trainer, endpoint), -1)
    trainer.complete()
    made.thread.join(5)
    assert not path.exists()


def test_a_server_that_nobody_calls_ends_after_its_parent(monkeypatch):
    with world(1) as created, world(1) as called:
        trainer = called.trainer(0)
        step(called, [trainer], 1.0)
        monkeypatch.setattr("runtime.ps.serving.server.ALONE_SECONDS", 0.3)
        time.sleep(0.5)
        assert created.thread.is_alive()
        monkeypatch.setattr(os, "getppid", lambda: 1)
        created.thread.join(60)
        assert "nobody has called the server in the 0.3 s since" in str(created.errors[0])
        time.sleep(0.5)
        np.testing.assert_array_equal(step(called, [trainer], 1.0)[0], -2)
        trainer.complete()


def test_repeated_messages_change_nothing():
    with world(1) as created:
        trainer = created.trainer(0)
        step(created, [trainer], 1.0)
        send(trainer, created.endpoint, 1.0)
        stream = trainer.remote(created.endpoint).stream
        messages = [message for _, each in stream._log for message in each]
        receive(trainer, created.endpoint)
        for message in messages:
            created.server.shard.receive(read_frame(message))
        np.testing.assert_array_equal(created.variables["w"], -2)


def test_a_completed_trainer_is_not_waited_for():
    with world() as created:
        trainers = [created.trainer(0), created.trainer(1)]
        step(created, trainers, 1.0)
        trainers[1].complete()
        np.testing.assert_array_equal(step(created, trainers[:1], 1.0)[0], -2)
        trainers[0].complete()


def test_a_lost_trainer_fails_the_job_by_name():
    with world() as created:
        trainers = [created.trainer(0), created.trainer(1)]
        step(created, trainers, 1.0)
        trainers[1].close()
        send(trainers[0], created.endpoint, 1.0)
        with pytest.raises(WireError, match="trainer 1 is lost"):
            receive(trainers[0], created.endpoint)
        trainers[0].close()
        created.thread.join(5)
        assert "trainer 1 is lost" in str(created.errors[0])


def test_shrink_continues_without_a_lost_trainer():
    with world(policy="shrink") as created:
        trainers = [created.trainer(0), created.trainer(1)]
        step(created, trainers, 1.0)
        trainers[1].close()
        np.testing.assert_array_equal(step(created, trainers[:1], 1.0)[0], -2)
        trainers[0].complete()


def test_wait_waits_for_the_return(monkeypatch):
    with world(policy="wait") as created:
        trainers = [created.trainer(0), created.trainer(1)]
        step(created, trainers, 1.0)
        trainers[1].close()
        again = created.trainer(1)
        assert again.step == 1
        np.testing.assert_array_equal(step(created, [trainers[0], again], 1.0)[1], -2)
        trainers[0].complete()
        again.complete()


def test_a_server_restarts_from_its_snapshot(tmp_path):
    with world(
        1, snapshot_dir=str(tmp_path), snapshot_steps=2, reconnect=20.0, lost_after=9.0
    ) as created:
        trainers = [created.trainer(0)]
        for _ in range(5):
            step(created, trainers, 1.0)
        created.server._join_writer()
        created.server._path = None  # it dies: nothing is written at its end
        created.end()
        for value in created.variables.values():
            value[...] = 99
        created.start()
        assert 0 < created.server.shard.step <= 5  # 5 where it was written after step 5
        end = time.monotonic() + 10.0
        while created.server.shard.step < 5:  # also if the trainer waits for another server
            assert time.monotonic() < end
            time.sleep(0.01)
        for found in step(created, trainers, 1.0):
            np.testing.assert_array_equal(found, -6)
        for trainer in trainers:
            trainer.complete()
        created.thread.join(5)
        assert not list(tmp_path.iterdir())


def test_a_trainer_that_joins_later_need_not_repeat_steps(tmp_path):
    with world(
        1, policy="wait", snapshot_dir=str(tmp_path), snapshot_steps=100, reconnect=20.0
    ) as created:
        killed = created.trainer(0)
        for _ in range(3):
            step(created, [killed], 1.0)
        killed.close()
        trainer = created.trainer(0)
        np.testing.assert_array_equal(step(created, [trainer], 1.0)[0], -4)
        created.server._path = None  # it is killed: nothing is written at its end
        created.end()
        created.variables["w"][...] = 99
        created.start()
        np.testing.assert_array_equal(step(created, [trainer], 1.0)[0], -5)
        trainer.complete()
        trainer.leave()


def test_parameters_that_were_lost_with_the_connection_are_sent_again():
    with world(1, return_within=5.0) as created:
        trainer = created.trainer(0)
        step(created, [trainer], 1.0)
        send(trainer, created.endpoint, 1.0)
        while created.server.shard.step < 2:
            time.sleep(0.01)
        trainer.remote(created.endpoint).stream._drop_call()
        np.testing.assert_array_equal(receive(trainer, created.endpoint), -2)
        trainer.complete()


def test_a_server_without_snapshots_cannot_be_replaced():
    with world(1, reconnect=20.0) as created:
        trainer = created.trainer(0)
        for _ in range(3):
            step(created, [trainer], 1.0)
        created.end()
        created.start()
        with pytest.raises(WireError, match="FLUID_PS_SNAPSHOT_DIR"):
            step(created, [trainer], 1.0)
        trainer.close()


def test_without_the_token_nothing_is_read():
    with world(1, security=Security(token="secret")) as created:
        stranger = created.trainer(0, replace(created.settings, security=Security(token="guess")))
        with pytest.raises(WireError, match="token"):
            receive(stranger, created.endpoint)
        stranger.close()
        trainer = created.trainer(0)
        np.testing.assert_array_equal(step(created, [trainer], 1.0)[0], -1)
        trainer.complete()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_mutual_tls(tmp_path):
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext".split()
    subprocess.run(
        ["openssl", *command, "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem],
        check=True, capture_output=True,
    )  # fmt: skip
    environ = {"FLUID_PS_CERT": str(pem), "FLUID_PS_KEY": str(key), "FLUID_PS_CA": str(pem)}
    with world(1, security=Security.from_env(environ)) as created:
        trainer = created.trainer(0)
        np.testing.assert_array_equal(step(created, [trainer], 1.0)[0], -1)
        trainer.complete()
        plain = created.trainer(0, replace(created.settings, security=Security(), reconnect=1.0))
        with pytest.raises(WireError, match="does not answer"):
            receive(plain, created.endpoint)
        plain.close()


def test_a_wrong_program_is_named():
    with world(1) as created:
        trainer = created.trainer(0)
        array = np.zeros(7, np.float32)
        with pytest.raises(WireError, match="do all processes build the same program"):
            trainer.send(["g.trainer_0"], [created.endpoint], [array], None, 0, False, True)
        trainer.close()
        other = created.trainer(0)
        with pytest.raises(WireError, match="is not on server"):
            other.recv(["nothing"], [created.endpoint], 0)
        other.close()


def test_a_subscription_names_a_variable_once_and_ends():
    with world(1) as created:
        shard = created.server.shard
        with pytest.raises(WireError, match="'w' occurs twice"), shard.subscribed(["w", "w"]):
            pass
        with shard.subscribed(["w"]) as key, shard.subscribed(["w"]):
            assert list(shard.version.messages) == [key]
        assert not shard.version.messages


def test_settings_name_the_variable():
    with pytest.raises(WireError, match="FLUID_PS_POLICY"):
        Settings.from_env({"FLUID_PS_POLICY": "panic"})
    with pytest.raises(WireError, match="FLUID_PS_HEARTBEAT_SECONDS"):
        Settings.from_env({"FLUID_PS_HEARTBEAT_SECONDS": "-1"})


@pytest.mark.parametrize("does", ["read", "sum"])
def test_calls_that_wait_end_with_the_server(does):
    before = set(threading.enumerate())
    with world(1, deadline=60.0) as job:
        channel = open_channel(job.endpoint, Security())
        message = pack({"do": does, "name": "w", "names": ["w"], "step": 9})
        if does == "read":
            waiting = stream_call(channel, "Fetch")(iter([message]), wait_for_ready=True)
        else:
            waiting = unary_call(channel, "Call").future(message, wait_for_ready=True)
        time.sleep(0.3)
        job.end()
        assert waiting.code().name in ("CANCELLED", "UNAVAILABLE", "FAILED_PRECONDITION")
        channel.close()
    time.sleep(0.5)
    pools = [each for each in set(threading.enumerate()) - before if "Pool" in each.name]
    assert not pools, "a thread of the server still waits"
